/* A limiter of many keys: cc limiter.c $(pkg-config --cflags --libs tollgate) && ./a.out */
#include <stdio.h>
#include <string.h>
#include <tollgate.h>

int main(void)
{
    /* A hundred requests per hour for each user, and at most three at once. */
    tollgate_limiter *limiter = NULL;
    char message[200];
    int result = tollgate_limiter_new("100/h burst 3", NULL, &limiter, message, sizeof message);
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", tollgate_strerror(result), message);
        return 1;
    }

    const char *users[] = {"alice", "alice", "alice", "alice", "bob"};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        tollgate_decision decision;
        decision.size = sizeof decision;
        result = tollgate_check(limiter, users[i], strlen(users[i]), &decision);
        if (result == TOLLGATE_ADMITTED)
            printf("%s: go ahead, %d more may follow at once\n", users[i], (int)decision.remaining);
        else if (result == TOLLGATE_DENIED)
            printf("%s: come back in %.0f s\n", users[i], (double)decision.retry_after_ns / 1e9);
        else
            fprintf(stderr, "%s: %s\n", users[i], tollgate_strerror(result));
    }

    /* A check with a cost and without a decision. The key is a number. */
    if (tollgate_check_u64(limiter, 42, 4, NULL) != TOLLGATE_ADMITTED)
        puts("user 42: a cost of 4 is refused");

    /* Free the limiter after all threads have stopped using it. */
    tollgate_limiter_free(limiter);
    return 0;
}
