/* Calls each function, at different times, and provokes each error. */
#include "test.h"

#define SECOND UINT64_C(1000000000)
#define DAY (86400 * SECOND)
/* The time of the first checks. No key is in use before. */
#define START (1000 * DAY)

static tollgate_decision unwritten(void)
{
    tollgate_decision decision;
    memset(&decision, 0xEE, sizeof decision);
    decision.size = sizeof decision;
    return decision;
}

static void versions(void)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", TOLLGATE_VERSION_MAJOR, TOLLGATE_VERSION_MINOR,
             TOLLGATE_VERSION_PATCH);
    CHECK(strcmp(TOLLGATE_VERSION, tollgate_version()) == 0);
    CHECK(strcmp(TOLLGATE_VERSION, text) == 0);
}

static void decisions(void)
{
    tollgate_limiter *limiter = limiter_of("10/s burst 2");
    tollgate_decision decision = unwritten();

    CHECK(tollgate_check_at(limiter, "alice", 5, 1, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.size == sizeof decision && decision.outcome == TOLLGATE_ADMITTED);
    CHECK(decision.source == TOLLGATE_SOURCE_KEY && decision.charged == 1);
    CHECK(decision.capacity == 2 && decision.remaining == 1);
    CHECK(decision.retry_after_ns == 0 && decision.start_after_ns == 0);
    CHECK(decision.reset_after_ns == SECOND / 10 && decision.at_ns == START);

    CHECK(tollgate_check_at(limiter, "alice", 5, 1, START, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_at(limiter, "alice", 5, 1, START, &decision) == TOLLGATE_DENIED);
    CHECK(decision.outcome == TOLLGATE_DENIED && decision.charged == 0);
    CHECK(decision.remaining == 0 && decision.retry_after_ns == SECOND / 10);
    CHECK(tollgate_check_at(limiter, "alice", 5, 3, START, &decision) == TOLLGATE_DENIED);
    CHECK(decision.outcome == TOLLGATE_TOO_COSTLY);
    CHECK(decision.retry_after_ns == TOLLGATE_NEVER);

    /* A peek charges nothing, and neither does a cost of 0. */
    CHECK(tollgate_peek_at(limiter, "bob", 3, 2, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.remaining == 2);
    CHECK(tollgate_check_at(limiter, "bob", 3, 0, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.remaining == 2);
    CHECK(tollgate_peek(limiter, "carol", 5, 3, NULL) == TOLLGATE_DENIED);
    tollgate_limiter_free(limiter);
}

static void keys(void)
{
    tollgate_limiter *limiter = limiter_of("1/d");
    uint64_t number = UINT64_C(0x0102030405060708);

    /* A key of length 0 is a key, whatever its pointer. */
    CHECK(tollgate_check(limiter, NULL, 0, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check(limiter, "alice", 0, NULL) == TOLLGATE_DENIED);
    /* A zero is a byte like all others. */
    CHECK(tollgate_check(limiter, "a\0b", 3, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check(limiter, "a\0c", 3, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check(limiter, "a", 1, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check(limiter, "a\0b", 3, NULL) == TOLLGATE_DENIED);
    /* A number is the same key as its bytes. */
    CHECK(tollgate_check_u64(limiter, number, 1, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_n(limiter, &number, sizeof number, 1, NULL) == TOLLGATE_DENIED);

    CHECK(tollgate_check(limiter, NULL, 1, NULL) == TOLLGATE_ERR_NULL);
    CHECK(tollgate_check(limiter, "alice", SIZE_MAX, NULL) == TOLLGATE_ERR_SIZE);
    CHECK(tollgate_check(NULL, "alice", 5, NULL) == TOLLGATE_ERR_NULL);
    tollgate_limiter_free(limiter);
    tollgate_limiter_free(NULL);
}

static void refunds(void)
{
    tollgate_limiter *limiter = limiter_of("5/d");
    tollgate_decision decision = unwritten(), look = unwritten();

    CHECK(tollgate_refund(limiter, "alice", 5, &decision, 1) == TOLLGATE_ERR_DECISION);
    CHECK(tollgate_refund(limiter, "alice", 5, NULL, 1) == TOLLGATE_ERR_NULL);
    CHECK(tollgate_check_at(limiter, "alice", 5, 5, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(tollgate_refund_at(limiter, "alice", 5, &decision, 2, START) == 0);
    CHECK(tollgate_peek_at(limiter, "alice", 5, 1, START, &look) == TOLLGATE_ADMITTED);
    CHECK(look.remaining == 2);

    CHECK(tollgate_check_n(limiter, "bob", 3, 5, &decision) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check(limiter, "bob", 3, &look) == TOLLGATE_DENIED);
    /* A denial has taken nothing. */
    CHECK(tollgate_refund(limiter, "bob", 3, &look, UINT64_MAX) == 0);
    CHECK(tollgate_check(limiter, "bob", 3, NULL) == TOLLGATE_DENIED);
    CHECK(tollgate_refund(limiter, "bob", 3, &decision, UINT64_MAX) == 0);
    CHECK(tollgate_check_n(limiter, "bob", 3, 5, NULL) == TOLLGATE_ADMITTED);
    tollgate_limiter_free(limiter);
}

static void many_keys(void)
{
    enum { COUNT = 100 };
    tollgate_limiter *limiter = limiter_of("1/d");
    tollgate_key keys[COUNT];
    tollgate_decision decisions[COUNT];
    int numbers[COUNT], results[COUNT], i;

    memset(decisions, 0, sizeof decisions);
    for (i = 0; i < COUNT; i++) {
        /* The last ten keys are the first ten keys again. */
        numbers[i] = i % 90;
        keys[i].key = &numbers[i];
        keys[i].key_len = sizeof numbers[i];
        results[i] = 77;
    }
    decisions[0].size = sizeof decisions[0];
    CHECK(tollgate_check_many(limiter, keys, 90, results, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_many(limiter, keys, COUNT, results, decisions) == TOLLGATE_DENIED);
    for (i = 0; i < COUNT; i++) {
        CHECK(results[i] == TOLLGATE_DENIED);
        CHECK(decisions[i].size == sizeof decisions[i]);
        CHECK(decisions[i].outcome == TOLLGATE_DENIED && decisions[i].retry_after_ns > 0);
    }
    CHECK(tollgate_check_many(limiter, NULL, 0, NULL, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_many(limiter, NULL, 1, NULL, NULL) == TOLLGATE_ERR_NULL);
    decisions[0].size = sizeof decisions[0] + 1;
    CHECK(tollgate_check_many(limiter, keys, 2, NULL, decisions) == TOLLGATE_ERR_SIZE);
    keys[1].key = NULL;
    numbers[0] = 1000;
    CHECK(tollgate_check_many(limiter, keys, 2, NULL, NULL) == TOLLGATE_ERR_NULL);
    /* Key 0 was not charged. */
    CHECK(tollgate_check_many(limiter, keys, 1, NULL, NULL) == TOLLGATE_ADMITTED);
    tollgate_limiter_free(limiter);
}

static void several_limits(void)
{
    tollgate_limiter *each = limiter_of("2/d"), *all = limiter_of("3/d");
    tollgate_decision of_each = unwritten(), of_all = unwritten();
    tollgate_charge charges[2];
    size_t denied_by = 77;

    memset(charges, 0, sizeof charges);
    charges[0].limiter = each;
    charges[0].key = "alice";
    charges[0].key_len = 5;
    charges[0].cost = 1;
    charges[0].decision = &of_each;
    charges[1].limiter = all;
    charges[1].cost = 1;
    charges[1].decision = &of_all;
    CHECK(tollgate_check_all(charges, 2, &denied_by) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_all(charges, 2, NULL) == TOLLGATE_ADMITTED);
    CHECK(denied_by == 77 && of_each.remaining == 0 && of_all.remaining == 1);
    CHECK(tollgate_check_all(charges, 2, &denied_by) == TOLLGATE_DENIED);
    CHECK(denied_by == 0);
    charges[0].key = "bob";
    charges[0].key_len = 3;
    CHECK(tollgate_check_all(charges, 2, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_all(charges, 2, &denied_by) == TOLLGATE_DENIED);
    CHECK(denied_by == 1);
    /* Bob's own limit was not charged. */
    CHECK(tollgate_check(each, "bob", 3, NULL) == TOLLGATE_ADMITTED);

    charges[1].reserved[1] = 1;
    CHECK(tollgate_check_all(charges, 2, NULL) == TOLLGATE_ERR_UNKNOWN);
    charges[1].reserved[1] = 0;
    charges[1].limiter = NULL;
    CHECK(tollgate_check_all(charges, 2, NULL) == TOLLGATE_ERR_NULL);
    CHECK(tollgate_check_all(NULL, 0, NULL) == TOLLGATE_ADMITTED);
    tollgate_limiter_free(each);
    tollgate_limiter_free(all);
}

static void quotas(void)
{
    tollgate_limiter *limiter = limiter_of("1/d");
    tollgate_decision decision = unwritten();
    tollgate_key_quota own[2];
    tollgate_stats stats;
    char message[200] = "";

    memset(own, 0, sizeof own);
    own[0].key = "paid";
    own[0].key_len = 4;
    own[0].quota = "100/d burst 7";
    own[1].key = "slow";
    own[1].key_len = 4;
    own[1].quota = "1/d strict";
    CHECK(tollgate_set_key_quotas(limiter, own, 2, NULL, 0) == 0);
    CHECK(tollgate_check(limiter, "paid", 4, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.capacity == 7 && decision.remaining == 6);

    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    CHECK(tollgate_stats_of(limiter, &stats) == 0);
    CHECK(stats.own_quotas == 2 && stats.keys == 1 && stats.max_keys == 1000000);
    CHECK(stats.bytes > 0 && stats.room > 0);
    stats.size = 8;
    CHECK(tollgate_stats_of(limiter, &stats) == TOLLGATE_ERR_SIZE);
    CHECK(tollgate_stats_of(limiter, NULL) == TOLLGATE_ERR_NULL);

    own[0].quota = NULL;
    CHECK(tollgate_set_key_quotas(limiter, own, 1, message, sizeof message) == 0);
    CHECK(tollgate_check(limiter, "paid", 4, &decision) == TOLLGATE_DENIED);
    own[1].quota = "often";
    CHECK(tollgate_set_key_quotas(limiter, own, 2, message, sizeof message) == TOLLGATE_ERR_SETTING);
    CHECK(strstr(message, "often") != NULL);

    CHECK(tollgate_set_quota(limiter, "50/d", message, sizeof message) == 0);
    CHECK(tollgate_check(limiter, "paid", 4, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.capacity == 50);
    CHECK(tollgate_set_quota(limiter, "50/d burst 0", message, sizeof message) == TOLLGATE_ERR_SETTING);
    CHECK(tollgate_set_quota(limiter, NULL, message, sizeof message) == TOLLGATE_ERR_NULL);
    CHECK(tollgate_set_quota(NULL, "1/s", NULL, 0) == TOLLGATE_ERR_NULL);
    tollgate_limiter_free(limiter);
}

static void options(void)
{
    /* A struct of a later version, as a program built for it passes it. */
    struct { tollgate_options known; uint64_t later; } wide;
    tollgate_options *options = &wide.known;
    tollgate_limiter *limiter = NULL;
    tollgate_decision decision = unwritten();
    char message[200] = "", cut[8];

    memset(&wide, 0, sizeof wide);
    options->size = sizeof *options;
    options->max_keys = 2;
    options->algorithm = "leaky-queue";
    options->when_full = "share";
    options->clock = "system";
    CHECK(tollgate_limiter_new("10/s", options, &limiter, message, sizeof message) == 0);
    CHECK(tollgate_check_at(limiter, "alice", 5, 1, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_at(limiter, "alice", 5, 1, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.start_after_ns == SECOND / 10);
    CHECK(tollgate_check_at(limiter, "bob", 3, 1, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(tollgate_check_at(limiter, "carol", 5, 1, START, &decision) == TOLLGATE_ADMITTED);
    CHECK(decision.source == TOLLGATE_SOURCE_OVERFLOW);
    CHECK(tollgate_now(limiter) > 0 && tollgate_now(NULL) == 0);
    tollgate_limiter_free(limiter);
    limiter = NULL;

    options->algorithm = "guess";
    CHECK(tollgate_limiter_new("1/s", options, &limiter, message, sizeof message) == TOLLGATE_ERR_SETTING);
    CHECK(strstr(message, "guess") != NULL && strstr(message, "token-bucket") != NULL);
    CHECK(tollgate_limiter_new("1/s", options, &limiter, cut, sizeof cut) == TOLLGATE_ERR_SETTING);
    CHECK(strlen(cut) == 7 && strncmp(cut, message, 7) == 0);
    options->algorithm = "sliding-log";
    CHECK(tollgate_limiter_new("1/s", options, &limiter, message, sizeof message) == TOLLGATE_ERR_SETTING);
    CHECK(strstr(message, "sliding-log") != NULL && strstr(message, "token-bucket") != NULL);
    CHECK(strstr(message, "exact_keys") == NULL);
    options->algorithm = NULL;
    options->clock = "sundial";
    CHECK(tollgate_limiter_new("1/s", options, &limiter, message, sizeof message) == TOLLGATE_ERR_SETTING);
    CHECK(strstr(message, "sundial") != NULL && strstr(message, "coarse") != NULL);
    options->clock = NULL;

    /* The size of a pointer, and sizes that end before the last field of the first version. */
    size_t last = offsetof(tollgate_options, clock);
    size_t small[] = {sizeof options, last, last + 4, last + sizeof(char *) - 1};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        options->size = small[i];
        CHECK(tollgate_limiter_new("1/s", options, &limiter, NULL, 0) == TOLLGATE_ERR_SIZE);
    }
    options->size = sizeof wide;
    CHECK(tollgate_limiter_new("1/s", options, &limiter, NULL, 0) == 0);
    tollgate_limiter_free(limiter);
    limiter = NULL;
    wide.later = 1;
    CHECK(tollgate_limiter_new("1/s", options, &limiter, NULL, 0) == TOLLGATE_ERR_UNKNOWN);
    options->size = 0;
    CHECK(tollgate_limiter_new("1/s", options, &limiter, NULL, 0) == TOLLGATE_ERR_SIZE);

    CHECK(tollgate_limiter_new(NULL, NULL, &limiter, NULL, 0) == TOLLGATE_ERR_NULL);
    CHECK(tollgate_limiter_new("1/s", NULL, NULL, NULL, 0) == TOLLGATE_ERR_NULL);
    CHECK(tollgate_limiter_new("\xFF/s", NULL, &limiter, message, sizeof message) == TOLLGATE_ERR_SETTING);
    CHECK(limiter == NULL);
}

static void sizes_of_decisions(void)
{
    struct { tollgate_decision known; uint64_t later; } wide;
    tollgate_limiter *limiter = limiter_of("1/d");

    memset(&wide, 0xEE, sizeof wide);
    wide.known.size = sizeof wide;
    CHECK(tollgate_check(limiter, "alice", 5, &wide.known) == TOLLGATE_ADMITTED);
    CHECK(wide.known.size == sizeof wide && wide.later == 0);
    CHECK(tollgate_refund(limiter, "alice", 5, &wide.known, 1) == 0);
    memset(&wide, 0xEE, sizeof wide);
    wide.known.size = sizeof wide.known - 1;
    CHECK(tollgate_check(limiter, "alice", 5, &wide.known) == TOLLGATE_ERR_SIZE);
    CHECK((uint32_t)wide.known.outcome == UINT32_C(0xEEEEEEEE));
    /* The key was not charged. */
    CHECK(tollgate_check(limiter, "alice", 5, NULL) == TOLLGATE_ADMITTED);
    tollgate_limiter_free(limiter);
}

/* The path is that of a file which does not exist. */
static void restarts(const char *path)
{
    tollgate_limiter *limiter = NULL, *other = NULL;
    char message[200] = "";
    FILE *file;

    CHECK(tollgate_limiter_open(path, "2/d", NULL, &limiter, message, sizeof message) == 0);
    CHECK(tollgate_check(limiter, "alice", 5, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_limiter_save(limiter, message, sizeof message) == 0);
    CHECK(tollgate_check(limiter, "alice", 5, NULL) == TOLLGATE_ADMITTED);
    CHECK(tollgate_limiter_save(limiter, NULL, 0) == 0);

    /* A file has one user at a time. */
    CHECK(tollgate_limiter_open(path, "2/d", NULL, &other, message, sizeof message)
          == TOLLGATE_ERR_STATE);
    CHECK(other == NULL && strstr(message, "another process uses this state") != NULL);
    tollgate_limiter_free(limiter);

    CHECK(tollgate_limiter_open(path, "2/d", NULL, &limiter, message, sizeof message) == 0);
    CHECK(tollgate_check(limiter, "alice", 5, NULL) == TOLLGATE_DENIED);
    CHECK(tollgate_check(limiter, "bob", 3, NULL) == TOLLGATE_ADMITTED);
    tollgate_limiter_free(limiter);

    CHECK(tollgate_limiter_open(path, "0/d", NULL, &other, message, sizeof message)
          == TOLLGATE_ERR_SETTING);
    CHECK(tollgate_limiter_open(NULL, "2/d", NULL, &other, message, sizeof message)
          == TOLLGATE_ERR_NULL);
    CHECK(tollgate_limiter_open(path, "2/d", NULL, NULL, NULL, 0) == TOLLGATE_ERR_NULL);
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("nonsense", file) >= 0 && fclose(file) == 0);
    CHECK(tollgate_limiter_open(path, "2/d", NULL, &other, message, sizeof message)
          == TOLLGATE_ERR_STATE);
    CHECK(strstr(message, "unusable") != NULL && strstr(message, path) != NULL);
    CHECK(remove(path) == 0);

    limiter = limiter_of("2/d");
    CHECK(tollgate_limiter_save(limiter, message, sizeof message) == TOLLGATE_ERR_STATE);
    CHECK(strstr(message, "tollgate_limiter_open") != NULL);
    CHECK(tollgate_limiter_save(NULL, NULL, 0) == TOLLGATE_ERR_NULL);
    tollgate_limiter_free(limiter);
}

static void texts(void)
{
    int result;
    for (result = TOLLGATE_ERR_STATE; result <= TOLLGATE_TOO_COSTLY; result++)
        CHECK(strncmp(tollgate_strerror(result), "unknown", 7) != 0);
    CHECK(strncmp(tollgate_strerror(-1000), "unknown", 7) == 0);
}

int main(int count, char **arguments)
{
    char path[1000];
    CHECK(count > 0 && strlen(arguments[0]) < sizeof path - 7);
    strcat(strcpy(path, arguments[0]), ".state");
    remove(path);

    versions();
    decisions();
    keys();
    refunds();
    many_keys();
    several_limits();
    quotas();
    options();
    sizes_of_decisions();
    restarts(path);
    texts();
    return 0;
}
