/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * softring: io_uring in user space, where the kernel denies it.
 *
 * A program linked with -lsoftring needs nothing of this header: its io_uring calls, through liburing, libc's
 * syscall() or inline, reach softring as they do under `softring run`, and the environment variables of
 * docs/INTERCEPTION.md apply. The first functions below are for programs that make the three system calls themselves;
 * each is the system call of the same name: the arguments and answers are those of io_uring_setup(2),
 * io_uring_enter(2) and io_uring_register(2), with -1 and errno on failure. The others are for threads that poll.
 */
#ifndef SOFTRING_H
#define SOFTRING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A program with libsoftring.a built in gets its own rings where the kernel denies them; nothing is preloaded. It calls
 * softring_install() first in main(), or in a constructor: before other threads, before a ring, and before setenv(3).
 * In a process that libsoftring.so serves already (`softring run`, -lsoftring) the call changes nothing.
 */
#define SOFTRING_OBEY_ENVIRONMENT 1u /* The variables of docs/INTERCEPTION.md count; else none does. */
#define SOFTRING_QUIET 2u            /* No line on stderr. */

/* Answers 0, also if called again; -1 and errno (EINVAL, ENOTSUP) on failure, when io_uring stays as it is. */
int softring_install(unsigned int flags);

struct io_uring_params; /* <linux/io_uring.h> */

/* Sets up a ring; answers its file descriptor. */
int softring_setup(unsigned int entries, struct io_uring_params *params);

/* Submits and waits. `arg` and `size`: a signal set and its size in bytes (8), or what IORING_ENTER_EXT_ARG takes. */
int softring_enter(int fd, unsigned int to_submit, unsigned int min_complete, unsigned int flags,
		   const void *arg, size_t size);

/* Registers files, buffers and the like with a ring. */
int softring_register(int fd, unsigned int opcode, void *arg, unsigned int nr_args);

/* The version of the library at run time, such as "0.1.0". */
const char *softring_version(void);

/*
 * Work meters: what a thread that polls really does with the processor that it holds.
 *
 * The thread makes a meter and says when it works. Two counters, in microseconds of that thread's processor time
 * and only ever growing, tell the time since the meter was made and the time spent with work; `softring metrics -p PID`
 * shows them while the program runs, as it does for SQ threads of rings. A poll loop looks like this:
 *
 *	struct softring_meter *m = softring_meter_create("rx 0");
 *	while (running) {
 *		n = poll_queue(batch, MAX);
 *		if (n == 0) {
 *			softring_meter_end(m);
 *			continue;
 *		}
 *		softring_meter_begin(m);
 *		handle(batch, n);
 *	}
 *	softring_meter_destroy(m);
 *
 * A stretch of work lasts from the first begin to the next end: an end in a pass without work, and a begin while work
 * goes on, cost a few instructions; only the first and the last of a stretch read the clock (about 30 ns each). Work
 * that is not polled for can be put between a begin and an end of its own just as well.
 *
 * All calls with a meter are the thread's that made it. A thread destroys its meter before it ends. A forked child may
 * go on with it: it gets counters of its own.
 * A program that is only now and then run under the library declares these functions weak and looks whether they are
 * there. Nothing here fails: without a statistics page (SOFTRING_STATS=0, or no room on it) a meter counts for
 * softring_meter_read() alone.
 */
struct softring_meter;

/* A meter of the calling thread's, called `name` (31 bytes at most, the rest is cut). Never NULL. */
struct softring_meter *softring_meter_create(const char *name);

/* Work begins, or goes on. */
void softring_meter_begin(struct softring_meter *meter);

/* Work ends, or there was none. */
void softring_meter_end(struct softring_meter *meter);

/* Both counters so far, in microseconds; either pointer may be NULL. */
void softring_meter_read(struct softring_meter *meter, uint64_t *total_us, uint64_t *work_us);

/* Ends the meter; NULL is allowed. */
void softring_meter_destroy(struct softring_meter *meter);

#ifdef __cplusplus
}
#endif

#endif /* SOFTRING_H */
