/* A Lua module for HAProxy, with limits whose state all threads of the process share. */
#include <lauxlib.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tollgate.h>

/* The limits, which exist until the process ends. All Lua states find them by their names. */
static struct limit {
    struct limit *next;
    tollgate_limiter *limiter;
    char name[64], quota[];
} *limits;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Finds the limit with this name, or creates it. Returns NULL and a message for a refused quota. */
static struct limit *find_or_make(const char *name, const char *quota, char *message, size_t size)
{
    pthread_mutex_lock(&lock);
    struct limit *limit = limits;
    for (; limit != NULL && strcmp(limit->name, name) != 0; limit = limit->next) {}
    if (limit == NULL && (limit = calloc(1, sizeof *limit + strlen(quota) + 1)) != NULL) {
        if (tollgate_limiter_new(quota, NULL, &limit->limiter, message, size) == 0) {
            strcpy(limit->name, name);
            strcpy(limit->quota, quota);
            limit->next = limits;
            limits = limit;
        } else {
            free(limit);
            limit = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return limit;
}

/* tollgate.limit(name, quota) returns a limit, as in tollgate.limit("api", "100/s burst 20"). */
static int limit(lua_State *lua)
{
    char message[200] = "no memory";
    size_t length, bytes;
    const char *name = luaL_checklstring(lua, 1, &length), *quota = luaL_checklstring(lua, 2, &bytes);
    luaL_argcheck(lua, length < sizeof limits->name, 1, "longer than 63 bytes");
    luaL_argcheck(lua, strlen(name) + strlen(quota) == length + bytes, 2, "a text with a zero byte");
    struct limit *found = find_or_make(name, quota, message, sizeof message);
    if (found == NULL) return luaL_error(lua, "limit %s: %s", name, message);
    if (strcmp(found->quota, quota) != 0)
        return luaL_error(lua, "limit %s: its quota is `%s`, not `%s`", name, found->quota, quota);
    *(struct limit **)lua_newuserdata(lua, sizeof found) = found;
    luaL_setmetatable(lua, "tollgate.limit");
    return 1;
}

/* limit:check(key) returns true if the request may go ahead. Otherwise it returns false and the
 * seconds to wait, or only false if no time can be promised. limit:check(key, cost) charges cost. */
static int check(lua_State *lua)
{
    struct limit *limit = *(struct limit **)luaL_checkudata(lua, 1, "tollgate.limit");
    size_t length;
    const char *key = luaL_checklstring(lua, 2, &length);
    lua_Integer cost = luaL_optinteger(lua, 3, 1);
    luaL_argcheck(lua, cost >= 0, 3, "negative");
    tollgate_decision decision = {.size = sizeof decision};
    int result = tollgate_check_n(limit->limiter, key, length, (uint64_t)cost, &decision);
    if (result < 0) return luaL_error(lua, "limit %s: %s", limit->name, tollgate_strerror(result));
    lua_pushboolean(lua, result == TOLLGATE_ADMITTED);
    if (result == TOLLGATE_ADMITTED || decision.retry_after_ns == TOLLGATE_NEVER)
        return 1;
    lua_pushinteger(lua, (lua_Integer)((decision.retry_after_ns - 1) / 1000000000 + 1));
    return 2;
}

int luaopen_tollgate(lua_State *lua)
{
    luaL_newmetatable(lua, "tollgate.limit");
    luaL_newlib(lua, ((const luaL_Reg[]){{"check", check}, {NULL, NULL}}));
    lua_setfield(lua, -2, "__index");
    luaL_newlib(lua, ((const luaL_Reg[]){{"limit", limit}, {NULL, NULL}}));
    return 1;
}
