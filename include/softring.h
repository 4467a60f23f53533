/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * softring: io_uring in user space, where the kernel denies it.
 *
 * A program linked with -lsoftring needs nothing of this header: its io_uring calls, through liburing, libc's
 * syscall() or inline, reach softring as they do under `softring run`, and the environment variables of
 * docs/DOORS.md apply. The functions below are for programs that make the three system calls themselves.
 *
 * Each is the system call of the same name: the arguments and answers are those of io_uring_setup(2),
 * io_uring_enter(2) and io_uring_register(2), with -1 and errno on failure.
 */
#ifndef SOFTRING_H
#define SOFTRING_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* SOFTRING_H */
