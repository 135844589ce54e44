/* Many threads check one key, and exactly its quota is admitted. Then the process forks. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, CHECKS = 2000, QUOTA = 1000 };

struct asking {
    const tollgate_limiter *limiter;
    int admitted;
};

static void *ask(void *argument)
{
    struct asking *asking = (struct asking *)argument;
    tollgate_decision decision;
    int i;

    decision.size = sizeof decision;
    for (i = 0; i < CHECKS; i++) {
        int result = tollgate_check(asking->limiter, "one", 3, i % 2 ? &decision : NULL);
        CHECK(result == TOLLGATE_ADMITTED || result == TOLLGATE_DENIED);
        asking->admitted += result == TOLLGATE_ADMITTED;
    }
    return NULL;
}

static int admitted_by_threads(const tollgate_limiter *limiter)
{
    pthread_t threads[THREADS];
    struct asking asking[THREADS];
    int i, sum = 0;

    for (i = 0; i < THREADS; i++) {
        asking[i].limiter = limiter;
        asking[i].admitted = 0;
        CHECK(pthread_create(&threads[i], NULL, ask, &asking[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        sum += asking[i].admitted;
    }
    return sum;
}

int main(void)
{
    /* The next token is available after 43 minutes. */
    tollgate_limiter *limiter = limiter_of("1000/30d");
    int status = 0;
    pid_t child;

    CHECK(admitted_by_threads(limiter) == QUOTA);

    /* A child continues with the state of its parent, with threads and new keys. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int denied = tollgate_check(limiter, "one", 3, NULL) == TOLLGATE_DENIED;
        int admitted = tollgate_check_n(limiter, "new", 3, QUOTA, NULL) == TOLLGATE_ADMITTED;
        _exit(denied && admitted && admitted_by_threads(limiter) == 0 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* The child's charges do not count in the parent. */
    CHECK(tollgate_check_n(limiter, "new", 3, QUOTA, NULL) == TOLLGATE_ADMITTED);
    tollgate_limiter_free(limiter);
    return 0;
}
