/* All C programs of the tests include this file. It is valid C99, C11 and C++17. */
#ifndef TEST_H
#define TEST_H

#include "tollgate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless `condition` holds, even if NDEBUG is defined. */
#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* Creates a limiter with this quota and the default options. */
static inline tollgate_limiter *limiter_of(const char *quota)
{
    tollgate_limiter *limiter = NULL;
    char message[200] = "";
    int result = tollgate_limiter_new(quota, NULL, &limiter, message, sizeof message);
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", tollgate_strerror(result), message);
        exit(1);
    }
    CHECK(limiter != NULL);
    return limiter;
}

#endif
