/* Preloaded: moves the wall clock of a process by the seconds in the file FAULTS_CLOCK names, at any
   moment. The monotonic clock, sleeps and waits stay true, as they do when a host's clock is set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;
static int64_t none;

static int64_t offset_s(void) {
  if (!offset) {
    const char *path = getenv("FAULTS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    offset = at == MAP_FAILED ? &none : at;
  }
  return *offset;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = (int)syscall(SYS_clock_gettime, clock, now);
  if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
  return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec ts;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
  now->tv_sec = ts.tv_sec;
  now->tv_usec = ts.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (out) *out = ts.tv_sec;
  return ts.tv_sec;
}
