/* tollgate: a lock-free, keyed rate limiter. Written by `make api`: don't edit it.
 *
 * Results. A function that decides about a request returns TOLLGATE_ADMITTED (0) or TOLLGATE_DENIED
 * (1); other functions return 0 for success. A negative number is an error. After an error, nothing
 * was charged, and nothing was written except the message. tollgate_strerror describes each
 * number. The library does not use errno.
 *
 * Threads. The comment of each function states which threads may call it. No function waits for
 * another thread, and the library starts no thread.
 *
 * Keys. A key may be any bytes, including 0. A key of length 0 is a key like any other, and its
 * pointer may be NULL; use it for a limit on a single resource. Equal bytes are the same key, in C
 * and in Rust.
 *
 * Ownership. The library keeps no pointer that it is passed. The only pointers that it returns are
 * limiters, which tollgate_limiter_free frees, and static texts.
 *
 * Structs. If a struct has a field `size`, the caller sets it to the sizeof of the struct. A later
 * version may append fields, for which zero means the behavior of this version.
 *
 * Panics of the library do not unwind into C. The function returns TOLLGATE_ERR_PANIC, and its work
 * may be half done. If the system refuses memory for a small allocation, the process is aborted.
 *
 * fork. In a child process, a limiter continues as an independent copy, whatever other threads of
 * the parent were doing. From then on, parent and child each count only their own admissions.
 *
 * Unloading. dlclose leaves the shared library in memory, because threads that have used it run its
 * code when they end. */

#ifndef TOLLGATE_H
#define TOLLGATE_H

#include <stddef.h>
#include <stdint.h>
/**
 * The version of this header. It is compatible with a library of the same major and minor version.
 */
#define TOLLGATE_VERSION "0.1.0"
#define TOLLGATE_VERSION_MAJOR 0
#define TOLLGATE_VERSION_MINOR 1
#define TOLLGATE_VERSION_PATCH 0


/**
 * The request may go ahead, and its cost was charged. Functions that do not decide about a request
 * return this number for success.
 */
#define TOLLGATE_ADMITTED 0

/**
 * The request may not go ahead, and nothing was charged. This is an answer, not an error.
 */
#define TOLLGATE_DENIED 1

/**
 * An `outcome` of a decision: the cost is above the capacity, so that the request can never pass.
 * Functions return `TOLLGATE_DENIED` for this outcome.
 */
#define TOLLGATE_TOO_COSTLY 2

/**
 * A pointer that must not be NULL is NULL.
 */
#define TOLLGATE_ERR_NULL -1

/**
 * The `size` of a struct is not its `sizeof`, or the length of a key is larger than any object.
 */
#define TOLLGATE_ERR_SIZE -2

/**
 * A quota or an option is out of range, or its text cannot be parsed. The message names it, the
 * allowed values, and the fix.
 */
#define TOLLGATE_ERR_SETTING -3

/**
 * There is not enough memory for the change. The same call may succeed later.
 */
#define TOLLGATE_ERR_MEMORY -4

/**
 * A reserved field is not zero, or a struct of a newer version sets a field that this library does
 * not know.
 */
#define TOLLGATE_ERR_UNKNOWN -5

/**
 * A decision was not written by this library.
 */
#define TOLLGATE_ERR_DECISION -6

/**
 * A fault in the library, which the library has reported on stderr. The limiter remains usable.
 */
#define TOLLGATE_ERR_PANIC -7

/**
 * The value of a field in nanoseconds for a time that will never be reached.
 */
#define TOLLGATE_NEVER UINT64_MAX

/**
 * The `source` of a decision: the state of the key itself.
 */
#define TOLLGATE_SOURCE_KEY 0

/**
 * The `source` of a decision: the state that new keys share while the table is full, if the option
 * `when_full` is "share".
 */
#define TOLLGATE_SOURCE_OVERFLOW 1

/**
 * The `source` of a decision: the table is full, and the option `when_full` answered.
 */
#define TOLLGATE_SOURCE_POLICY 2

/**
 * A limiter of many keys. `tollgate_limiter_new` creates it, and `tollgate_limiter_free` frees it.
 *
 * Functions that take the limiter as `const` may be called by any number of threads at once.
 */
typedef struct tollgate_limiter tollgate_limiter;

/**
 * The options of a limiter. Clear the struct to zero and set `size`. Zero and NULL mean the
 * default.
 */
typedef struct tollgate_options {
    /**
     * `sizeof(tollgate_options)`.
     */
    size_t size;
    /**
     * The maximum number of tracked keys. It bounds the memory: 24 to 32 bytes per key, and four
     * times as much while the table grows. 0 means one million.
     */
    uint64_t max_keys;
    /**
     * The number of tokens that a key may owe. 0 means none.
     */
    uint64_t max_debt;
    /**
     * "token-bucket" (the default), "leaky-bucket", "leaky-queue", "fixed-window" or
     * "sliding-window".
     */
    const char *algorithm;
    /**
     * The policy for new keys while `max_keys` other keys are in use: "deny" (the default),
     * "allow", or "share" for one state that all such keys share.
     */
    const char *when_full;
    /**
     * "counter" (the default: the processor's counter, checked against the system's clock),
     * "system", or "coarse" (up to 10 ms late). None of the clocks starts a thread.
     */
    const char *clock;
} tollgate_options;

/**
 * The answer to a request. Set `size` before you pass the struct to a function; no other field
 * needs a value. Functions write it for admissions and denials, and leave it unchanged on an
 * error.
 *
 * Times are in nanoseconds. `TOLLGATE_NEVER` means that no time can be promised.
 */
typedef struct tollgate_decision {
    /**
     * `sizeof(tollgate_decision)`.
     */
    size_t size;
    /**
     * `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or `TOLLGATE_TOO_COSTLY`.
     */
    int32_t outcome;
    /**
     * `TOLLGATE_SOURCE_KEY`, `TOLLGATE_SOURCE_OVERFLOW` or `TOLLGATE_SOURCE_POLICY`. Later
     * versions may have more.
     */
    uint32_t source;
    /**
     * The tokens that this request took.
     */
    uint64_t charged;
    /**
     * The maximum number of tokens that can be taken at once.
     */
    uint64_t capacity;
    /**
     * The tokens that are left after this decision, from 0 to `capacity`.
     */
    uint64_t remaining;
    /**
     * The time until the same request would pass, if no other request is charged first. 0 if the
     * request was admitted.
     */
    uint64_t retry_after_ns;
    /**
     * The time until all of `capacity` remains, if the key is not charged meanwhile.
     */
    uint64_t reset_after_ns;
    /**
     * The time that an admitted request must wait before it starts, for the algorithm
     * "leaky-queue". 0 for all other algorithms.
     */
    uint64_t start_after_ns;
    /**
     * The time for which the request was decided, on the limiter's clock.
     */
    uint64_t at_ns;
    /**
     * A mark by which the library recognizes a decision that it has written.
     */
    uint64_t mark;
    /**
     * The charge, for `tollgate_refund`. Copy this field with the struct, and do not change it.
     */
    uint64_t charge[8];
} tollgate_decision;

/**
 * A key for `tollgate_check_many`, which may be any bytes. A key of length 0 is a key like any
 * other, and its pointer may be NULL.
 */
typedef struct tollgate_key {
    /**
     * The first byte.
     */
    const void *key;
    /**
     * The number of bytes.
     */
    size_t key_len;
} tollgate_key;

/**
 * One limit of `tollgate_check_all`.
 */
typedef struct tollgate_charge {
    /**
     * The limiter. Several charges may name one limiter, with different keys.
     */
    const struct tollgate_limiter *limiter;
    /**
     * The first byte of the key.
     */
    const void *key;
    /**
     * The number of bytes.
     */
    size_t key_len;
    /**
     * The tokens to charge.
     */
    uint64_t cost;
    /**
     * The place for the decision of this limit, or NULL.
     */
    struct tollgate_decision *decision;
    /**
     * Must be 0. Later versions may give these fields a meaning.
     */
    uint64_t reserved[2];
} tollgate_charge;

/**
 * A key and its quota, for `tollgate_set_key_quotas`.
 */
typedef struct tollgate_key_quota {
    /**
     * The first byte of the key.
     */
    const void *key;
    /**
     * The number of bytes.
     */
    size_t key_len;
    /**
     * The quota as text, such as "100/s burst 20". NULL removes the key's quota, and the limiter's
     * quota applies to the key again.
     */
    const char *quota;
} tollgate_key_quota;

/**
 * The figures of a limiter. Set `size` before you pass the struct to `tollgate_stats_of`.
 */
typedef struct tollgate_stats {
    /**
     * `sizeof(tollgate_stats)`.
     */
    size_t size;
    /**
     * The number of keys that are tracked.
     */
    uint64_t keys;
    /**
     * The number of keys that the table has room for before it grows or evicts idle keys.
     */
    uint64_t room;
    /**
     * The maximum number of tracked keys.
     */
    uint64_t max_keys;
    /**
     * The number of times that the table was replaced, to grow, to evict idle keys, or for a new
     * quota.
     */
    uint64_t turnovers;
    /**
     * The number of idle keys that were evicted. Evicting an idle key changes no decision.
     */
    uint64_t evicted;
    /**
     * The number of checks of new keys that found the table full and were answered by `when_full`.
     */
    uint64_t refused;
    /**
     * The number of keys that have their own quota, whether they are tracked or not.
     */
    uint64_t own_quotas;
    /**
     * The size of the limiter and of all memory that it has allocated, in bytes.
     */
    uint64_t bytes;
} tollgate_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library, such as "0.1.0". `TOLLGATE_VERSION` is the version of the
 * header.
 *
 * Any thread may call it. The text is static.
 */
const char *tollgate_version(void);

/**
 * Returns a text that describes a result, for a log. The text is never NULL.
 *
 * Any thread may call it. The text is static.
 */
const char *tollgate_strerror(int result);

/**
 * Creates a limiter that enforces `quota` for each key. A quota is a text such as "100/s", "100/s
 * burst 20", "5/10s" or "1000/h strict", with the units ns, us, ms, s, min, h and d. `options` may
 * be NULL.
 *
 * On success, returns 0 and writes the handle to `*limiter`. On failure, returns an error, leaves
 * `*limiter` unchanged, and writes a text to `message`, unless that is NULL. The text states the
 * fault and the allowed values. It is cut to `message_size` bytes, including a 0 at the end; 200
 * bytes suffice for most messages.
 *
 * Any thread may call it. The caller owns the handle, and must free it with
 * `tollgate_limiter_free`. Texts and options are copied.
 *
 * Preconditions:
 * Pointers are NULL or valid, texts end with a 0, and `options` has as many bytes as its `size`
 * states.
 */
int tollgate_limiter_new(const char *quota,
                         const struct tollgate_options *options,
                         struct tollgate_limiter **limiter,
                         char *message,
                         size_t message_size);

/**
 * Frees a limiter and the states of all its keys. NULL is ignored.
 *
 * One thread may call it, once, after all other threads have stopped using the limiter. Decisions
 * remain readable.
 *
 * Preconditions:
 * `limiter` is NULL or a live handle from `tollgate_limiter_new`. The handle is invalid
 * afterwards.
 */
void tollgate_limiter_free(struct tollgate_limiter *limiter);

/**
 * Checks whether a request of `key` may go ahead now, and charges one token if so.
 *
 * Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. `decision` may be NULL, which is
 * faster.
 *
 * Any number of threads may call it at once, even for the same key. No call waits for another. The
 * library keeps neither the key nor the decision.
 *
 * Preconditions:
 * `limiter` is a live handle, `key` has `key_len` bytes, and `decision` is NULL or has as many
 * bytes as its `size` states.
 */
int tollgate_check(const struct tollgate_limiter *limiter,
                   const void *key,
                   size_t key_len,
                   struct tollgate_decision *decision);

/**
 * Like `tollgate_check`, for `cost` tokens, of which it charges all or none. A cost of 0 is
 * admitted and charges nothing.
 *
 * Any number of threads may call it at once. The library keeps neither the key nor the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply.
 */
int tollgate_check_n(const struct tollgate_limiter *limiter,
                     const void *key,
                     size_t key_len,
                     uint64_t cost,
                     struct tollgate_decision *decision);

/**
 * Like `tollgate_check_n`, for a key that is a number. The key equals the eight bytes of the
 * number in memory: `tollgate_check_n(limiter, &key, 8, cost, decision)`.
 *
 * Any number of threads may call it at once. The library does not keep the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply.
 */
int tollgate_check_u64(const struct tollgate_limiter *limiter,
                       uint64_t key,
                       uint64_t cost,
                       struct tollgate_decision *decision);

/**
 * Like `tollgate_check_n`, at a time that the caller passes, in nanoseconds and at most 2^61. Use
 * it to make several checks with one reading of `tollgate_now`, in tests, and with times from a
 * log. The time may be earlier than in a previous call.
 *
 * Any number of threads may call it at once. The library keeps neither the key nor the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply.
 */
int tollgate_check_at(const struct tollgate_limiter *limiter,
                      const void *key,
                      size_t key_len,
                      uint64_t cost,
                      uint64_t now_ns,
                      struct tollgate_decision *decision);

/**
 * Returns the answer that `tollgate_check_n` would give now. It charges nothing, and the figures
 * of the decision are those before a charge.
 *
 * Any number of threads may call it at once. The library keeps neither the key nor the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply.
 */
int tollgate_peek(const struct tollgate_limiter *limiter,
                  const void *key,
                  size_t key_len,
                  uint64_t cost,
                  struct tollgate_decision *decision);

/**
 * Like `tollgate_peek`, at a time that the caller passes.
 *
 * Any number of threads may call it at once. The library keeps neither the key nor the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply.
 */
int tollgate_peek_at(const struct tollgate_limiter *limiter,
                     const void *key,
                     size_t key_len,
                     uint64_t cost,
                     uint64_t now_ns,
                     struct tollgate_decision *decision);

/**
 * Gives back at most `tokens` of the tokens that a check of `key` took when it wrote `decision`;
 * `UINT64_MAX` gives back all of them. Tokens that have refilled since the check are not given
 * back. Refund each charge at most once.
 *
 * Returns 0, even if nothing was given back, or an error.
 *
 * Any number of threads may call it at once. The library keeps neither the key nor the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply. A function of this library has written `decision`.
 */
int tollgate_refund(const struct tollgate_limiter *limiter,
                    const void *key,
                    size_t key_len,
                    const struct tollgate_decision *decision,
                    uint64_t tokens);

/**
 * Like `tollgate_refund`, at a time that the caller passes.
 *
 * Any number of threads may call it at once. The library keeps neither the key nor the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_refund` apply.
 */
int tollgate_refund_at(const struct tollgate_limiter *limiter,
                       const void *key,
                       size_t key_len,
                       const struct tollgate_decision *decision,
                       uint64_t tokens,
                       uint64_t now_ns);

/**
 * Like `tollgate_check`, for `count` keys in their order. The library looks up 32 keys at a time,
 * which is faster than single checks if the keys are not in the processor's caches.
 *
 * Writes the result of each key to `results` and its decision to `decisions`; either may be NULL.
 * Set the `size` of the first decision, which applies to all of them. Returns `TOLLGATE_ADMITTED`
 * if all keys are admitted, and `TOLLGATE_DENIED` if any key is denied. If it returns an error, no
 * key is charged.
 *
 * Any number of threads may call it at once. The library keeps none of the arguments. The function
 * allocates a buffer.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply to each key. `keys` has `count` elements, and so do
 * `results` and `decisions` unless they are NULL.
 */
int tollgate_check_many(const struct tollgate_limiter *limiter,
                        const struct tollgate_key *keys,
                        size_t count,
                        int *results,
                        struct tollgate_decision *decisions);

/**
 * Checks one request against several limits. The request is admitted if all of them admit it, and
 * it is charged to all of them or to none. Name each key of a limiter at most once.
 *
 * Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. If it returns an error, nothing is
 * charged. For a denial, writes the index of the limit with the longest wait to `denied_by`,
 * unless that is NULL.
 *
 * Any number of threads may call it at once. The library keeps none of the arguments. The function
 * allocates memory for more than 8 limits.
 *
 * Preconditions:
 * `charges` has `count` elements. The preconditions of `tollgate_check` apply to each of them.
 */
int tollgate_check_all(const struct tollgate_charge *charges, size_t count, size_t *denied_by);

/**
 * Replaces the quota of all keys that do not have their own quota. Tokens that were taken stay
 * taken.
 *
 * Returns 0 or an error. On an error, the quota stays as before, and `message` gets a text that
 * states the fault.
 *
 * Any number of threads may call it at once, also during checks. The text is copied.
 *
 * Preconditions:
 * The preconditions of `tollgate_limiter_new` apply.
 */
int tollgate_set_quota(const struct tollgate_limiter *limiter,
                       const char *quota,
                       char *message,
                       size_t message_size);

/**
 * Sets or removes the quotas of single keys. The call is one change, which costs as much as
 * `tollgate_set_quota`, so change many keys in one call.
 *
 * Returns 0 or an error. On an error, nothing is changed, and `message` gets a text that states
 * the fault.
 *
 * Any number of threads may call it at once, also during checks. Keys and texts are copied.
 *
 * Preconditions:
 * The preconditions of `tollgate_limiter_new` apply. `quotas` has `count` elements.
 */
int tollgate_set_key_quotas(const struct tollgate_limiter *limiter,
                            const struct tollgate_key_quota *quotas,
                            size_t count,
                            char *message,
                            size_t message_size);

/**
 * Writes the figures of a limiter to `stats`. The function visits all keys.
 *
 * Returns 0 or an error. Any number of threads may call it at once.
 *
 * Preconditions:
 * `limiter` is a live handle, and `stats` has as many bytes as its `size` states.
 */
int tollgate_stats_of(const struct tollgate_limiter *limiter, struct tollgate_stats *stats);

/**
 * Returns the time of the limiter's clock in nanoseconds, for the functions that take a time.
 * Returns 0 for NULL.
 *
 * Any number of threads may call it at once.
 *
 * Preconditions:
 * `limiter` is a live handle or NULL.
 */
uint64_t tollgate_now(const struct tollgate_limiter *limiter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOLLGATE_H */
