/* Shifts the time of day of a program that loads this library by CLOCK_SHIFT seconds. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift;

__attribute__((constructor)) static void read_shift(void) {
  const char *text = getenv("CLOCK_SHIFT");
  if (text) shift = atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec time;
  int result = clock_gettime(CLOCK_REALTIME, &time);
  (void)zone;
  if (result == 0 && now) {
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
  }
  return result;
}

time_t time(time_t *now) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  if (now) *now = time.tv_sec;
  return time.tv_sec;
}
