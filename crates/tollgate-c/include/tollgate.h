/* tollgate: a lock-free, keyed rate limiter. Written by `make api`: don't edit it.
 *
 * Results. A function that decides about a request returns TOLLGATE_ADMITTED (0) or TOLLGATE_DENIED
 * (1); other functions return 0 for success. A negative number is an error. After an error, nothing
 * was charged, and nothing was written except the message, unless the error is TOLLGATE_ERR_PANIC.
 * To refuse a request after an error, too, compare the result with TOLLGATE_ADMITTED.
 * tollgate_strerror describes each number. Functions may change errno.
 *
 * Threads. The comment of each function states which threads may call it. No function waits for
 * another thread, except for tollgate_limiter_save, and the library starts no thread. Call no
 * function in a signal handler, because a check may allocate, and do not cancel a thread
 * (pthread_cancel) during a call.
 *
 * Keys. A key may be any bytes, including 0. A key of length 0 is a key like any other, and its
 * pointer may be NULL; use it for a limit on a single resource. Equal bytes are the same key, in C
 * and in Rust.
 *
 * Ownership. The library keeps no pointer that it is passed. The only pointers that it returns are
 * limiters, which tollgate_limiter_free frees, and static texts.
 *
 * Structs. If a struct has a field `size`, the caller sets it to the sizeof of the struct. A later
 * version may append fields, for which zero means the behaviour of this version.
 *
 * Panics of the library do not unwind into C. The function returns TOLLGATE_ERR_PANIC, and its work
 * may be half done. If the system refuses memory for a table of keys, the function returns an error.
 * If it refuses any other memory, such as that of a list of quotas, the process is aborted.
 *
 * fork. In a child process, a limiter continues as an independent copy, whatever other threads of
 * the parent were doing, except for tollgate_limiter_save. From then on, parent and child each count
 * only their own admissions.
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
 * The request may proceed, and its cost was charged. Functions that do not decide about a request
 * return this number on success.
 */
#define TOLLGATE_ADMITTED 0

/**
 * The request must not proceed, and nothing was charged. This result is an answer, not an error.
 */
#define TOLLGATE_DENIED 1

/**
 * An `outcome` of a decision: the cost exceeds the capacity, so the request can never pass.
 * Functions return `TOLLGATE_DENIED` for this outcome.
 */
#define TOLLGATE_TOO_COSTLY 2

/**
 * A pointer is NULL where NULL is not allowed.
 */
#define TOLLGATE_ERR_NULL -1

/**
 * The `size` of a struct differs from its `sizeof`, or the length of a key or of an array exceeds
 * the maximum size of an object. A `size` that could be that of another version is not noticed.
 */
#define TOLLGATE_ERR_SIZE -2

/**
 * A quota or an option is out of range, or its text cannot be parsed, or there is no memory for a
 * new limiter. The message names the setting, the allowed values, and the fix.
 */
#define TOLLGATE_ERR_SETTING -3

/**
 * No memory is currently available for the change of a quota. The same call may succeed later.
 */
#define TOLLGATE_ERR_MEMORY -4

/**
 * A reserved field is not zero, or a struct from a newer version sets a field that this library
 * does not support.
 */
#define TOLLGATE_ERR_UNKNOWN -5

/**
 * The decision was not written by this library.
 */
#define TOLLGATE_ERR_DECISION -6

/**
 * An internal fault, which the library has reported on stderr. The limiter remains usable.
 */
#define TOLLGATE_ERR_PANIC -7

/**
 * The file of a saved state cannot be read or written, is unusable, or is used by another limiter.
 * The message contains the reason.
 */
#define TOLLGATE_ERR_STATE -8

/**
 * In a field that counts nanoseconds, this value means that the time will never be reached.
 */
#define TOLLGATE_NEVER UINT64_MAX

/**
 * The `source` of a decision: the key's own state.
 */
#define TOLLGATE_SOURCE_KEY 0

/**
 * The `source` of a decision: the state that new keys share while the table is full. Requires the
 * value "share" for the option `when_full`.
 */
#define TOLLGATE_SOURCE_OVERFLOW 1

/**
 * The `source` of a decision: the table is full, so the option `when_full` determined the answer.
 */
#define TOLLGATE_SOURCE_POLICY 2

/**
 * A limiter for many keys. `tollgate_limiter_new` and `tollgate_limiter_open` create a limiter,
 * and `tollgate_limiter_free` frees it.
 *
 * If a function takes the limiter as `const`, any number of threads may call the function at once.
 */
typedef struct tollgate_limiter tollgate_limiter;

/**
 * The options of a limiter. Clear the struct to zero, and then set `size`. Zero and NULL select
 * the defaults.
 */
typedef struct tollgate_options {
    /**
     * `sizeof(tollgate_options)`.
     */
    size_t size;
    /**
     * The maximum number of tracked keys, which bounds memory usage: 24 to 32 bytes per key, and
     * four times as much while the table grows. 0 means one million.
     */
    uint64_t max_keys;
    /**
     * "token-bucket" (the default), "leaky-bucket", "leaky-queue", "fixed-window" or
     * "sliding-window".
     */
    const char *algorithm;
    /**
     * The policy for new keys while `max_keys` other keys are in use: "deny" (the default),
     * "allow", or "share". With "share", all such keys share one state.
     */
    const char *when_full;
    /**
     * The clock: "counter" (the default), "system", or "coarse" (up to 10 ms late). "counter" uses
     * the processor's counter and checks it against the system's clock. None of the clocks starts
     * a thread.
     */
    const char *clock;
} tollgate_options;

/**
 * The answer to a request. Before you pass the struct to a function, set `size`; no other field
 * needs a value. Functions write the struct when they admit or deny a request, and leave it
 * unchanged on an error.
 *
 * Times are in nanoseconds. `TOLLGATE_NEVER` means that no time can be guaranteed.
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
     * versions may add sources.
     */
    uint32_t source;
    /**
     * The number of tokens that this request was charged.
     */
    uint64_t charged;
    /**
     * The maximum number of tokens that a request can charge at once.
     */
    uint64_t capacity;
    /**
     * The number of tokens that remain after this decision, from 0 to `capacity`.
     */
    uint64_t remaining;
    /**
     * How long to wait until the same request would pass, provided that no other request is
     * charged in between. 0 if the request was admitted.
     */
    uint64_t retry_after_ns;
    /**
     * How long it takes until `capacity` tokens remain, provided that the key is not charged in
     * between.
     */
    uint64_t reset_after_ns;
    /**
     * With the algorithm "leaky-queue", how long an admitted request must wait before it starts. 0
     * for all other algorithms.
     */
    uint64_t start_after_ns;
    /**
     * The time at which the request was decided, according to the limiter's clock.
     */
    uint64_t at_ns;
    /**
     * A mark that identifies decisions written by the library.
     */
    uint64_t mark;
    /**
     * The charge, for `tollgate_refund`. Copy this field together with the struct, and do not
     * modify it.
     */
    uint64_t charge[8];
} tollgate_decision;

/**
 * A key for `tollgate_check_many`. It may consist of any bytes. A key of length 0 is a key like
 * any other, and its pointer may be NULL.
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
 * A limit for `tollgate_check_all`.
 */
typedef struct tollgate_charge {
    /**
     * The limiter. Several charges may name the same limiter, but with different keys.
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
     * The number of tokens to charge.
     */
    uint64_t cost;
    /**
     * Where this limit's decision is written, or NULL.
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
     * The quota as a string, such as "100/s burst 20". If this is NULL, the key's own quota is
     * removed, and the limiter's quota applies to the key again.
     */
    const char *quota;
} tollgate_key_quota;

/**
 * The figures of a limiter. Before you pass the struct to `tollgate_stats_of`, set `size`.
 */
typedef struct tollgate_stats {
    /**
     * `sizeof(tollgate_stats)`.
     */
    size_t size;
    /**
     * The number of tracked keys.
     */
    uint64_t keys;
    /**
     * How many keys fit into the table before it grows or evicts idle keys.
     */
    uint64_t room;
    /**
     * The maximum number of tracked keys.
     */
    uint64_t max_keys;
    /**
     * How many times the table was replaced, either to grow, to evict idle keys, or to apply a new
     * quota.
     */
    uint64_t turnovers;
    /**
     * The number of evicted keys. Only idle keys are evicted, which changes no decision.
     */
    uint64_t evicted;
    /**
     * How many checks of new keys were decided by `when_full` because the table was full.
     */
    uint64_t refused;
    /**
     * The number of keys that have their own quota, including keys that are not tracked.
     */
    uint64_t own_quotas;
    /**
     * The total size in bytes of the limiter and of all memory that it has allocated.
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
 * Any thread may call this function. The returned string is static.
 */
const char *tollgate_version(void);

/**
 * Returns a string that describes a result, for logging. The string is never NULL.
 *
 * Any thread may call this function. The returned string is static.
 */
const char *tollgate_strerror(int result);

/**
 * Creates a limiter that enforces `quota` for each key. A quota is a string such as "100/s",
 * "100/s burst 20", "5/10s" or "1000/h strict". The units are ns, us, ms, s, min, h and d.
 * `options` may be NULL.
 *
 * On success, returns 0 and writes the handle to `*limiter`. On failure, returns an error and
 * leaves `*limiter` unchanged. If `message` is not NULL, a failure also writes an error text to
 * `message`. The text states the fault and the allowed values, and is truncated to `message_size`
 * bytes, including a terminating 0; 200 bytes suffice for most messages.
 *
 * Any thread may call this function. The caller owns the handle, and must free it with
 * `tollgate_limiter_free`. The library copies the strings and the options.
 *
 * Preconditions:
 * Every pointer is NULL or valid, strings end with a 0, and `options` has as many bytes as its
 * `size` states.
 */
int tollgate_limiter_new(const char *quota,
                         const struct tollgate_options *options,
                         struct tollgate_limiter **limiter,
                         char *message,
                         size_t message_size);

/**
 * Creates a limiter whose state can be saved in a file, so that the counts survive a restart. If
 * the file exists, the limiter continues the state that `tollgate_limiter_save` has written.
 * Otherwise the limiter is new. `quota` and `options` are as in `tollgate_limiter_new`. They may
 * differ from the saved limiter's, except for the algorithm.
 *
 * Until the handle is freed, no other handle can use the file, in this or any other process. A
 * lock file, with the suffix ".lock", is created beside the file and never removed.
 * After a fork, only one of the two processes may save, and the child only if no thread of the
 * parent was saving at the fork. The file stays in use until both processes have ended or freed
 * the handle.
 *
 * The time since the save is measured by the time of day. `tollgate_now` continues the time of the
 * saved limiter, or starts at 0 if none of the saved states still counts. If you pass your own
 * times, they must never be earlier than `tollgate_now`, and must continue after a restart.
 *
 * On success, returns 0 and writes the handle to `*limiter`. On failure, returns an error, writes
 * a text to `message` as `tollgate_limiter_new` does, and leaves `*limiter` and the file
 * unchanged. The error is `TOLLGATE_ERR_STATE` if the file cannot be used; to start with a new
 * limiter, rename the file.
 *
 * Any thread may call this function. The caller owns the handle, and must free it with
 * `tollgate_limiter_free`. The library copies the strings and the options.
 *
 * Preconditions:
 * The preconditions of `tollgate_limiter_new` apply.
 */
int tollgate_limiter_open(const char *path,
                          const char *quota,
                          const struct tollgate_options *options,
                          struct tollgate_limiter **limiter,
                          char *message,
                          size_t message_size);

/**
 * Writes the state of all keys to the file of a limiter that `tollgate_limiter_open` has created.
 * The file is replaced atomically, so it is complete even if the process is killed during the
 * call.
 *
 * The state is saved at the time of `tollgate_now`. If you pass your own times, they must be times
 * of `tollgate_now`: a key that was charged at other times may later be admitted too early.
 *
 * Call this function every few seconds, and once more after the last check. After a crash, a key
 * may be admitted again as many tokens as it was admitted since the last save. A million keys take
 * up about 18 MB. Saving them takes about a tenth of a second, plus the time of the disk.
 *
 * On success, returns 0. On failure, returns an error and writes a text to `message` as
 * `tollgate_limiter_new` does; unless the disk fails after the replacement, the earlier file
 * remains. The error is `TOLLGATE_ERR_STATE` if the file cannot be written, or if the limiter has
 * no file.
 *
 * Any number of threads may call this function at once, while other threads check keys. Calls for
 * the same limiter wait for each other. Keep the file secret, because anyone who can read it can
 * test whether a guessed key was used. On Unix, only the owner of the file can read and write it.
 *
 * Preconditions:
 * `limiter` is a live handle or NULL, and `message` is NULL or has `message_size` bytes.
 */
int tollgate_limiter_save(const struct tollgate_limiter *limiter,
                          char *message,
                          size_t message_size);

/**
 * Frees a limiter and the states of all its keys. Ignores NULL.
 *
 * Call this function once, on a single thread, after all other threads have stopped using the
 * limiter. Existing decisions remain readable.
 *
 * Preconditions:
 * `limiter` is NULL or a live handle from `tollgate_limiter_new` or `tollgate_limiter_open`. The
 * handle is invalid after the call.
 */
void tollgate_limiter_free(struct tollgate_limiter *limiter);

/**
 * Checks whether a request of `key` may proceed now. If so, charges one token.
 *
 * Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. Passing NULL as `decision` is
 * allowed, and faster.
 *
 * Any number of threads may call this function at once, even for the same key, and no call waits
 * for another call. The library keeps neither the key nor the decision.
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
 * Like `tollgate_check`, but charges `cost` tokens, either all or none. A cost of 0 is admitted
 * and charges nothing.
 *
 * Any number of threads may call this function at once. The library keeps neither the key nor the
 * decision.
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
 * Like `tollgate_check_n`, but for a numeric key. The key consists of the number's eight bytes in
 * memory, so `tollgate_check_n(limiter, &key, 8, cost, decision)` uses the same key.
 *
 * Any number of threads may call this function at once. The library does not keep the decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply.
 */
int tollgate_check_u64(const struct tollgate_limiter *limiter,
                       uint64_t key,
                       uint64_t cost,
                       struct tollgate_decision *decision);

/**
 * Like `tollgate_check_n`, but at a time that the caller passes. The time is in nanoseconds and
 * must be at most 2^61. Use this function to share one reading of `tollgate_now` among several
 * checks, for tests, or for timestamps from a log. Times may go backwards. A time above 2^61
 * counts as 2^61. Use one clock for each limiter: after a charge at the time of another clock,
 * which may be years ahead of `tollgate_now`, a check at `tollgate_now` may be denied for as long.
 *
 * Any number of threads may call this function at once. The library keeps neither the key nor the
 * decision.
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
 * Returns the answer that `tollgate_check_n` would give now, without charging any tokens. The
 * figures in the decision describe the state before a charge.
 *
 * Any number of threads may call this function at once. The library keeps neither the key nor the
 * decision.
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
 * Like `tollgate_peek`, but at a time that the caller passes.
 *
 * Any number of threads may call this function at once. The library keeps neither the key nor the
 * decision.
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
 * Gives back tokens that a check has charged to `key`. `decision` is the decision that the check
 * wrote. At most `tokens` tokens are given back; `UINT64_MAX` means all of them. Tokens that have
 * refilled since the check are not given back a second time. Refund each charge at most once.
 *
 * Returns 0 or an error. The result is 0 even if no token was given back.
 *
 * Any number of threads may call this function at once. The library keeps neither the key nor the
 * decision.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply. `decision` was written by a function of this
 * library.
 */
int tollgate_refund(const struct tollgate_limiter *limiter,
                    const void *key,
                    size_t key_len,
                    const struct tollgate_decision *decision,
                    uint64_t tokens);

/**
 * Like `tollgate_refund`, but at a time that the caller passes.
 *
 * Any number of threads may call this function at once. The library keeps neither the key nor the
 * decision.
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
 * Like `tollgate_check`, but checks `count` keys in order. The library looks up 32 keys at a time,
 * which is faster than single checks if the keys are not in the processor's caches.
 *
 * Writes the result for each key to `results`, and the decision for each key to `decisions`.
 * Either pointer may be NULL. Set the `size` of the first decision, which applies to all
 * decisions. Returns `TOLLGATE_ADMITTED` if all keys are admitted, and `TOLLGATE_DENIED` if any
 * key is denied. If this function returns an error other than `TOLLGATE_ERR_PANIC`, no key is
 * charged.
 *
 * Any number of threads may call this function at once. The library keeps none of the arguments.
 * The function allocates a buffer.
 *
 * Preconditions:
 * The preconditions of `tollgate_check` apply to each key. `keys` has `count` elements. `results`
 * and `decisions` also have `count` elements, unless they are NULL.
 */
int tollgate_check_many(const struct tollgate_limiter *limiter,
                        const struct tollgate_key *keys,
                        size_t count,
                        int *results,
                        struct tollgate_decision *decisions);

/**
 * Checks one request against several limits. If all limits admit the request, it is admitted and
 * all limits are charged. Otherwise, it is denied and no limit is charged. Name each key of a
 * limiter at most once.
 *
 * Returns `TOLLGATE_ADMITTED`, `TOLLGATE_DENIED` or an error. An error charges no limit. If the
 * request is denied and `denied_by` is not NULL, the index of the limit with the longest wait is
 * written to `denied_by`.
 *
 * Any number of threads may call this function at once. The library keeps none of the arguments.
 * The function allocates memory if there are more than 8 limits.
 *
 * Preconditions:
 * `charges` has `count` elements. The preconditions of `tollgate_check` apply to each element.
 */
int tollgate_check_all(const struct tollgate_charge *charges, size_t count, size_t *denied_by);

/**
 * Replaces the quota of all keys that do not have their own quota. Tokens that were already
 * charged remain charged.
 *
 * Returns 0 or an error. On an error, the quota is unchanged, and `message` receives a string that
 * states the fault.
 *
 * Any number of threads may call this function at once, even during checks. The library copies the
 * string.
 *
 * Preconditions:
 * The preconditions of `tollgate_limiter_new` apply.
 */
int tollgate_set_quota(const struct tollgate_limiter *limiter,
                       const char *quota,
                       char *message,
                       size_t message_size);

/**
 * Sets or removes the quotas of individual keys. All keys are changed in a single step, which
 * costs as much as `tollgate_set_quota`. To change many keys, use a single call.
 *
 * Returns 0 or an error. On an error, no quota is changed, and `message` receives a string that
 * states the fault.
 *
 * Any number of threads may call this function at once, even during checks. The library copies the
 * keys and the strings.
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
 * Writes a limiter's figures to `stats`. This function visits all keys.
 *
 * Returns 0 or an error. Any number of threads may call this function at once.
 *
 * Preconditions:
 * `limiter` is a live handle, and `stats` has as many bytes as its `size` states.
 */
int tollgate_stats_of(const struct tollgate_limiter *limiter, struct tollgate_stats *stats);

/**
 * Returns the current time of the limiter's clock in nanoseconds, for functions that accept a
 * time. Returns 0 if `limiter` is NULL.
 *
 * Any number of threads may call this function at once.
 *
 * Preconditions:
 * `limiter` is a live handle or NULL.
 */
uint64_t tollgate_now(const struct tollgate_limiter *limiter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOLLGATE_H */
