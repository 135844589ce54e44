/* A thread that has used the shared library ends after dlclose. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>

typedef int create(const char *, const tollgate_options *, tollgate_limiter **, char *, size_t);
typedef int check(const tollgate_limiter *, const void *, size_t, tollgate_decision *);
typedef void release(tollgate_limiter *);

static void *library;
static pthread_barrier_t used, closed;

/* POSIX promises that these pointers convert; ISO C does not. */
static void find(const char *name, void *function)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(function, &found, sizeof found);
}

static void *use(void *argument)
{
    tollgate_limiter *limiter = NULL;
    create *new_limiter;
    check *ask;
    release *give_back;

    (void)argument;
    find("tollgate_limiter_new", &new_limiter);
    find("tollgate_check", &ask);
    find("tollgate_limiter_free", &give_back);
    CHECK(new_limiter("1/d", NULL, &limiter, NULL, 0) == 0);
    CHECK(ask(limiter, "alice", 5, NULL) == TOLLGATE_ADMITTED);
    CHECK(ask(limiter, "alice", 5, NULL) == TOLLGATE_DENIED);
    give_back(limiter);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;

    CHECK(count == 2);
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    CHECK(pthread_barrier_init(&used, NULL, 2) == 0 && pthread_barrier_init(&closed, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, use, NULL) == 0);
    pthread_barrier_wait(&used);
    CHECK(dlclose(library) == 0);
    pthread_barrier_wait(&closed);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
