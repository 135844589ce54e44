/* tollgate: a lock-free, keyed rate limiter. Written by `make api`: don't edit it.
 *
 * Results. A function that answers a request returns TOLLGATE_ADMITTED (0) or TOLLGATE_DENIED
 * (1); other functions return 0 for success. A negative number is an error, and then nothing was
 * charged and nothing was written except the message. tollgate_strerror has a text for each number.
 * errno is not used.
 *
 * Threads. Each function says who may call it. No function waits for another thread, and the
 * library starts no thread.
 *
 * Keys. A key is any bytes, 0 among them. A key of length 0 is a key like all others, and its
 * pointer may be NULL: it serves for a limit on one resource. Equal bytes are the same key, in C
 * and in Rust.
 *
 * Ownership. The library keeps no pointer that it is given, and returns none but a limiter, which
 * tollgate_limiter_free frees, and static texts.
 *
 * Structs with a field `size` are filled by the caller: set it to the sizeof of the struct. A later
 * version may append fields, whose zero means the behavior of this one.
 *
 * Panics of the library do not unwind into C: the function returns TOLLGATE_ERR_PANIC, and what it
 * was asked for may be half done. Where the system refuses memory for a small allocation, the
 * process is aborted.
 *
 * fork. In a child process a limiter continues as a copy of its own, whatever other threads of the
 * parent were doing. Parent and child do not share what they admit from then on.
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
 * The request may go ahead; its cost was charged. Functions that answer no request return it for
 * success.
 */
#define TOLLGATE_ADMITTED 0

/**
 * The request may not go ahead. Nothing was charged. This is an answer, not an error.
 */
#define TOLLGATE_DENIED 1

/**
 * An `outcome` of a decision: the cost is above the capacity, so the request can never pass.
 * Functions return `TOLLGATE_DENIED` for it.
 */
#define TOLLGATE_TOO_COSTLY 2

/**
 * A pointer is NULL that must not be.
 */
#define TOLLGATE_ERR_NULL -1

/**
 * The `size` of a struct is not its `sizeof`, or the length of a key is no length of an object.
 */
#define TOLLGATE_ERR_SIZE -2

/**
 * A quota or an option is out of range or is no such text. The message says which, what is
 * allowed, and the fix.
 */
#define TOLLGATE_ERR_SETTING -3

/**
 * There is no memory for the change now. The same call may succeed later.
 */
#define TOLLGATE_ERR_MEMORY -4

/**
 * A reserved field is not zero, or a struct of a newer version sets what this library does not
 * know.
 */
#define TOLLGATE_ERR_UNKNOWN -5

/**
 * A decision was not written by this library.
 */
#define TOLLGATE_ERR_DECISION -6

/**
 * A fault in the library, which it has reported on stderr. The limiter remains usable.
 */
#define TOLLGATE_ERR_PANIC -7

/**
 * A time that never comes, in a field that counts nanoseconds.
 */
#define TOLLGATE_NEVER UINT64_MAX

/**
 * The `source` of a decision: the key's own state.
 */
#define TOLLGATE_SOURCE_KEY 0

/**
 * The `source` of a decision: the state that new keys share while the table is full, by the option
 * `when_full` of "share".
 */
#define TOLLGATE_SOURCE_OVERFLOW 1

/**
 * The `source` of a decision: the table is full, and the option `when_full` answered.
 */
#define TOLLGATE_SOURCE_POLICY 2

/**
 * A limiter of many keys. `tollgate_limiter_new` makes it, `tollgate_limiter_free` frees it.
 *
 * A function that takes it as `const` may be called by any threads at once.
 */
typedef struct tollgate_limiter tollgate_limiter;

/**
 * The options of a limiter. Clear it to zero and set `size`; zero and NULL mean the default.
 */
typedef struct tollgate_options {
    /**
     * `sizeof(tollgate_options)`.
     */
    size_t size;
    /**
     * The most keys that are tracked, which bounds the memory: 24 to 32 bytes a key, four times
     * that while the table grows. 0: one million.
     */
    uint64_t max_keys;
    /**
     * How many tokens a key may owe. 0: none.
     */
    uint64_t max_debt;
    /**
     * "token-bucket" (the default), "leaky-bucket", "leaky-queue", "fixed-window" or
     * "sliding-window".
     */
    const char *algorithm;
    /**
     * What a new key gets while `max_keys` others are in use: "deny" (the default), "allow", or
     * "share" for one state that all such keys share.
     */
    const char *when_full;
    /**
     * "counter" (the default, the processor's counter, checked against the system's clock),
     * "system" or "coarse" (up to 10 ms late). None starts a thread.
     */
    const char *clock;
} tollgate_options;

/**
 * The answer to a request. Set `size` before it is passed to a function; nothing else needs a
 * value. It is written for admissions and denials, and left as it is on an error.
 *
 * Times are nanoseconds; `TOLLGATE_NEVER` where none can be promised.
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
     * The most tokens that can be taken at once.
     */
    uint64_t capacity;
    /**
     * The tokens left after this decision, from 0 to `capacity`.
     */
    uint64_t remaining;
    /**
     * How long until the same request passes, if no other comes first: 0 if it was admitted.
     */
    uint64_t retry_after_ns;
    /**
     * How long until all of `capacity` remains, if the key is not charged meanwhile.
     */
    uint64_t reset_after_ns;
    /**
     * For the algorithm "leaky-queue", how long an admitted request waits before it starts; else
     * 0.
     */
    uint64_t start_after_ns;
    /**
     * The time for which the request was decided, on the limiter's clock.
     */
    uint64_t at_ns;
    /**
     * Says that this library has written the decision.
     */
    uint64_t mark;
    /**
     * What `tollgate_refund` needs to know of the charge. Copy it with the struct, and do not
     * change it.
     */
    uint64_t charge[8];
} tollgate_decision;

/**
 * A key of `tollgate_check_many`: any bytes. A key of length 0 is a key like all others, and its
 * pointer may be NULL.
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
     * Where the decision of this limit goes, or NULL.
     */
    struct tollgate_decision *decision;
    /**
     * 0. Later versions may give it a meaning.
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
     * The quota as text, such as "100/s burst 20"; NULL if the limiter's quota shall hold for the
     * key again.
     */
    const char *quota;
} tollgate_key_quota;

/**
 * What a limiter holds and has done. Set `size` before it is passed to `tollgate_stats_of`.
 */
typedef struct tollgate_stats {
    /**
     * `sizeof(tollgate_stats)`.
     */
    size_t size;
    /**
     * Keys that are tracked.
     */
    uint64_t keys;
    /**
     * Keys that the table has room for before it grows or forgets idle keys.
     */
    uint64_t room;
    /**
     * The most keys that may be tracked.
     */
    uint64_t max_keys;
    /**
     * How often the table was replaced: to grow, to forget idle keys, or for a new quota.
     */
    uint64_t turnovers;
    /**
     * Idle keys that were forgotten, which changes no decision.
     */
    uint64_t evicted;
    /**
     * Checks of new keys that found the table full, and were answered by `when_full`.
     */
    uint64_t refused;
    /**
     * Keys that have a quota of their own, tracked or not.
     */
    uint64_t own_quotas;
    /**
     * Bytes taken: the limiter and all that it has allocated.
     */
    uint64_t bytes;
} tollgate_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.1.0". `TOLLGATE_VERSION` is that of the header.
 *
 * Any thread may call it. The text is static.
 */
const char *tollgate_version(void);

/**
 * The text of a result, for a log. Never NULL.
 *
 * Any thread may call it. The text is static.
 */
const char *tollgate_strerror(int result);

/**
 * Makes a limiter that enforces `quota` for each key: "100/s", "100/s burst 20", "5/10s",
 * "1000/h strict"; the units are ns, us, ms, s, min, h and d. `options` may be NULL.
 *
 * Returns 0 and writes the handle to `*limiter`; or returns an error, leaves `*limiter` as it is,
 * and writes what is wrong and what is allowed to `message` (cut to `message_size` bytes, with a 0
 * at the end), unless that is NULL. 200 bytes suffice for most messages.
 *
 * Any thread may call it. The caller owns the handle and frees it with `tollgate_limiter_free`;
 * texts and options are copied.
 *
 * Preconditions:
 * Pointers are NULL or valid, texts end with a 0, and `options` has the bytes that its `size`
 * says.
 */
int tollgate_limiter_new(const char *quota,
                         const struct tollgate_options *options,
                         struct tollgate_limiter **limiter,
                         char *message,
                         size_t message_size);

/**
 * Frees a limiter, and all it remembers. NULL is ignored.
 *
 * One thread calls it, once, when no other thread uses the limiter any more. Decisions remain
 * readable.
 *
 * Preconditions:
 * `limiter` is NULL or a live handle of `tollgate_limiter_new`, which ends here.
 */
void tollgate_limiter_free(struct tollgate_limiter *limiter);

/**
 * May `key` do this now? Charges one token if so.
 *
 * Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. `decision` may be NULL, which is
 * faster.
 *
 * Any threads may call it at once, also for one key; no call waits for another. Neither the key
 * nor the decision is kept.
 *
 * Preconditions:
 * `limiter` is a live handle, `key` has `key_len` bytes, and `decision` is NULL or has the bytes
 * that its `size` says.
 */
int tollgate_check(const struct tollgate_limiter *limiter,
                   const void *key,
                   size_t key_len,
                   struct tollgate_decision *decision);

/**
 * `tollgate_check` for `cost` tokens: charges all of them or none. A cost of 0 is admitted and
 * charges nothing.
 *
 * Any threads may call it at once. Neither the key nor the decision is kept.
 *
 * Preconditions:
 * As `tollgate_check`.
 */
int tollgate_check_n(const struct tollgate_limiter *limiter,
                     const void *key,
                     size_t key_len,
                     uint64_t cost,
                     struct tollgate_decision *decision);

/**
 * `tollgate_check_n` for a key that is a number. It is the same key as the eight bytes of the
 * number in memory: `tollgate_check_n(limiter, &key, 8, cost, decision)`.
 *
 * Any threads may call it at once. The decision is not kept.
 *
 * Preconditions:
 * As `tollgate_check`.
 */
int tollgate_check_u64(const struct tollgate_limiter *limiter,
                       uint64_t key,
                       uint64_t cost,
                       struct tollgate_decision *decision);

/**
 * `tollgate_check_n` at a time of the caller's own, in nanoseconds, at most 2^61 of them: for one
 * reading of `tollgate_now` for several checks, for tests, and for times of a log. Times may go
 * back.
 *
 * Any threads may call it at once. Neither the key nor the decision is kept.
 *
 * Preconditions:
 * As `tollgate_check`.
 */
int tollgate_check_at(const struct tollgate_limiter *limiter,
                      const void *key,
                      size_t key_len,
                      uint64_t cost,
                      uint64_t now_ns,
                      struct tollgate_decision *decision);

/**
 * What `tollgate_check_n` would answer now. Charges nothing; the figures are those before a
 * charge.
 *
 * Any threads may call it at once. Neither the key nor the decision is kept.
 *
 * Preconditions:
 * As `tollgate_check`.
 */
int tollgate_peek(const struct tollgate_limiter *limiter,
                  const void *key,
                  size_t key_len,
                  uint64_t cost,
                  struct tollgate_decision *decision);

/**
 * `tollgate_peek` at a time of the caller's own.
 *
 * Any threads may call it at once. Neither the key nor the decision is kept.
 *
 * Preconditions:
 * As `tollgate_check`.
 */
int tollgate_peek_at(const struct tollgate_limiter *limiter,
                     const void *key,
                     size_t key_len,
                     uint64_t cost,
                     uint64_t now_ns,
                     struct tollgate_decision *decision);

/**
 * Gives back at most `tokens` of what the check of `key` that wrote `decision` took; `UINT64_MAX`
 * for all of it. Only what the charge still holds comes back: what has not refilled since. Each
 * charge is refunded once.
 *
 * Returns 0, also if nothing came back, or an error.
 *
 * Any threads may call it at once. Neither the key nor the decision is kept.
 *
 * Preconditions:
 * As `tollgate_check`, and a function of this library has written `decision`.
 */
int tollgate_refund(const struct tollgate_limiter *limiter,
                    const void *key,
                    size_t key_len,
                    const struct tollgate_decision *decision,
                    uint64_t tokens);

/**
 * `tollgate_refund` at a time of the caller's own.
 *
 * Any threads may call it at once. Neither the key nor the decision is kept.
 *
 * Preconditions:
 * As `tollgate_refund`.
 */
int tollgate_refund_at(const struct tollgate_limiter *limiter,
                       const void *key,
                       size_t key_len,
                       const struct tollgate_decision *decision,
                       uint64_t tokens,
                       uint64_t now_ns);

/**
 * `tollgate_check` for `count` keys in their order, 32 at a time, which pays when they are not in
 * the processor's caches.
 *
 * `results` gets the result of each key, `decisions` its decision; either may be NULL. Set the
 * `size` of the first decision; it holds for all. Returns `TOLLGATE_ADMITTED` if all keys are
 * admitted, `TOLLGATE_DENIED` if any is denied, or an error, and then no key is charged.
 *
 * Any threads may call it at once. Nothing is kept. It allocates a buffer.
 *
 * Preconditions:
 * As `tollgate_check` for each key; `keys`, and `results` and `decisions` unless NULL, have
 * `count` elements.
 */
int tollgate_check_many(const struct tollgate_limiter *limiter,
                        const struct tollgate_key *keys,
                        size_t count,
                        int *results,
                        struct tollgate_decision *decisions);

/**
 * Asks several limits for one request, which is admitted if all of them admit it, and charged to
 * all or to none. Name each key of a limiter once.
 *
 * Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED`, or an error, and then nothing is charged. For a
 * denial `denied_by`, unless NULL, gets the index of the limit with the longest wait.
 *
 * Any threads may call it at once. Nothing is kept. More than 8 limits allocate.
 *
 * Preconditions:
 * `charges` has `count` elements, each as `tollgate_check` needs it.
 */
int tollgate_check_all(const struct tollgate_charge *charges, size_t count, size_t *denied_by);

/**
 * Replaces the quota of all keys that have none of their own. Tokens that are taken stay taken.
 *
 * Returns 0; or an error, with what is wrong in `message`, and the quota is as before.
 *
 * Any threads may call it at once, beside checks. The text is copied.
 *
 * Preconditions:
 * As `tollgate_limiter_new`.
 */
int tollgate_set_quota(const struct tollgate_limiter *limiter,
                       const char *quota,
                       char *message,
                       size_t message_size);

/**
 * Gives keys quotas of their own, or removes them. All of it is one change and costs as much as
 * `tollgate_set_quota`, so change many keys by one call.
 *
 * Returns 0; or an error, with what is wrong in `message`, and nothing is changed.
 *
 * Any threads may call it at once, beside checks. Keys and texts are copied.
 *
 * Preconditions:
 * As `tollgate_limiter_new`; `quotas` has `count` elements.
 */
int tollgate_set_key_quotas(const struct tollgate_limiter *limiter,
                            const struct tollgate_key_quota *quotas,
                            size_t count,
                            char *message,
                            size_t message_size);

/**
 * The figures of a limiter. It visits all keys.
 *
 * Returns 0 or an error. Any threads may call it at once.
 *
 * Preconditions:
 * `limiter` is a live handle, and `stats` has the bytes that its `size` says.
 */
int tollgate_stats_of(const struct tollgate_limiter *limiter, struct tollgate_stats *stats);

/**
 * The time of the limiter's clock, in nanoseconds, for the functions that take a time; 0 for NULL.
 *
 * Any threads may call it at once.
 *
 * Preconditions:
 * `limiter` is a live handle or NULL.
 */
uint64_t tollgate_now(const struct tollgate_limiter *limiter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOLLGATE_H */
