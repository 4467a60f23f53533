/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * As much of io_uring as the programs of this folder need, by raw system calls: it takes a C compiler and nothing else.
 *
 * The functions here are right: they take EINTR, EAGAIN and EBUSY for what they are, count on no wake-up to bring a
 * completion, and flush an overflow. A program has only the bug that its first lines name.
 */
#ifndef BUGGY_RING_H
#define BUGGY_RING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef FIXED
#define IS_FIXED 1
#else
#define IS_FIXED 0
#endif

/* linux/io_uring.h, which may be missing here, or older than this. */
enum { SYS_SETUP = 425, SYS_ENTER = 426, SYS_REGISTER = 427 };
enum { SETUP_CQSIZE = 1 << 3 };
enum { ENTER_GETEVENTS = 1 << 0, ENTER_EXT_ARG = 1 << 3 };
enum { REGISTER_PBUF_RING = 22 };
enum { OFF_SQ_RING = 0, OFF_CQ_RING = 0x8000000, OFF_SQES = 0x10000000 };
enum { SQ_CQ_OVERFLOW = 1 << 1 };
enum { IO_LINK = 1 << 2, BUFFER_SELECT = 1 << 5 };
enum { F_BUFFER = 1 << 0, F_MORE = 1 << 1, F_NOTIF = 1 << 3, BUFFER_SHIFT = 16 };
enum { OP_NOP = 0, OP_FSYNC = 3, OP_ACCEPT = 13, OP_ASYNC_CANCEL = 14, OP_READ = 22, OP_WRITE = 23, OP_RECV = 27,
       OP_RENAMEAT = 35, OP_SEND_ZC = 47 };
enum { ACCEPT_MULTISHOT = 1 << 0 };

struct sq_offsets { uint32_t head, tail, ring_mask, ring_entries, flags, dropped, array, resv; uint64_t user_addr; };
struct cq_offsets { uint32_t head, tail, ring_mask, ring_entries, overflow, cqes, flags, resv; uint64_t user_addr; };

struct params {
	uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, resv[3];
	struct sq_offsets sq;
	struct cq_offsets cq;
};

struct sqe {
	uint8_t opcode, flags;
	uint16_t ioprio;
	int32_t fd;
	uint64_t off, addr;
	uint32_t len, op_flags;
	uint64_t user_data;
	uint16_t buf_group, personality;
	int32_t file_index;
	uint64_t addr3, pad;
};

struct cqe {
	uint64_t user_data;
	int32_t res;
	uint32_t flags;
};

struct ring {
	int fd;
	uint32_t *sq_head, *sq_tail, *sq_flags, sq_mask;
	uint32_t *cq_head, *cq_tail, cq_mask;
	struct sqe *sqes;
	struct cqe *cqes;
};

/* Says what is wrong, and ends the program. */
static inline void __attribute__((format(printf, 1, 2), noreturn)) wrong(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(1);
}

/* An error of the machine's that the program has noticed and reports: that is right. */
static inline void __attribute__((noreturn)) gave_up(const char *what, int res)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(-res));
	exit(0);
}

/* What the program needs before its test begins. */
static inline long need(long result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
		exit(2);
	}
	return result;
}

static inline void *ring_map(int fd, size_t size, off_t offset)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);

	need(at == MAP_FAILED ? -1 : 0, "mmap");
	return at;
}

/* Makes a ring; cq_entries of 0 leaves the size of the CQ to the kernel. */
static inline void ring_init(struct ring *ring, unsigned entries, unsigned cq_entries)
{
	struct params p = { .flags = cq_entries ? SETUP_CQSIZE : 0, .cq_entries = cq_entries };

	ring->fd = need(syscall(SYS_SETUP, entries, &p), "io_uring_setup");
	char *sq = ring_map(ring->fd, p.sq.array + p.sq_entries * sizeof(uint32_t), OFF_SQ_RING);
	char *cq = ring_map(ring->fd, p.cq.cqes + p.cq_entries * sizeof(struct cqe), OFF_CQ_RING);

	ring->sqes = ring_map(ring->fd, p.sq_entries * sizeof(struct sqe), OFF_SQES);
	ring->sq_head = (uint32_t *)(sq + p.sq.head);
	ring->sq_tail = (uint32_t *)(sq + p.sq.tail);
	ring->sq_flags = (uint32_t *)(sq + p.sq.flags);
	ring->sq_mask = p.sq_entries - 1;
	ring->cq_head = (uint32_t *)(cq + p.cq.head);
	ring->cq_tail = (uint32_t *)(cq + p.cq.tail);
	ring->cq_mask = p.cq_entries - 1;
	ring->cqes = (struct cqe *)(cq + p.cq.cqes);
	for (uint32_t i = 0; i < p.sq_entries; i++)
		((uint32_t *)(sq + p.sq.array))[i] = i;
}

/* The next SQE, filled in. The caller sees to it that the SQ has room. */
static inline struct sqe *ring_sqe(struct ring *ring, int opcode, int fd, const void *addr, unsigned len, uint64_t off)
{
	struct sqe *sqe = &ring->sqes[*ring->sq_tail & ring->sq_mask];

	*sqe = (struct sqe){ .opcode = opcode, .fd = fd, .addr = (uintptr_t)addr, .len = len, .off = off };
	__atomic_store_n(ring->sq_tail, *ring->sq_tail + 1, __ATOMIC_RELEASE);
	return sqe;
}

/* io_uring_enter(2), as it is: the number of SQEs that were taken, or a negative error number. */
static inline int ring_enter(struct ring *ring, unsigned to_submit, unsigned min_complete)
{
	long done = syscall(SYS_ENTER, ring->fd, to_submit, min_complete, min_complete ? ENTER_GETEVENTS : 0, NULL, 0);

	return done < 0 ? -errno : done;
}

static inline unsigned ring_queued(struct ring *ring)
{
	return *ring->sq_tail - __atomic_load_n(ring->sq_head, __ATOMIC_ACQUIRE);
}

/* Whether an error of io_uring_enter(2) or of a request means no more than "again". */
static inline int is_again(int res)
{
	return res == -EINTR || res == -EAGAIN || res == -EBUSY;
}

/* Submits all that is queued. */
static inline void ring_submit(struct ring *ring)
{
	while (ring_queued(ring)) {
		int done = ring_enter(ring, ring_queued(ring), 0);

		if (done < 0 && !is_again(done)) {
			errno = -done;
			need(-1, "io_uring_enter");
		}
	}
}

static inline struct cqe *ring_peek(struct ring *ring)
{
	uint32_t head = *ring->cq_head;

	return head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) ? NULL : &ring->cqes[head & ring->cq_mask];
}

/* Waits for a CQE at most so many milliseconds; NULL if none has come. */
static inline struct cqe *ring_wait_for(struct ring *ring, int ms)
{
	struct { int64_t sec, nsec; } time = { ms / 1000, ms % 1000 * 1000000 };
	struct { uint64_t sigmask; uint32_t sigmask_sz, min_wait; uint64_t ts; } arg = { 0, 0, 0, (uintptr_t)&time };
	int flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
	struct cqe *cqe;

	while (!(cqe = ring_peek(ring))) {
		if (syscall(SYS_ENTER, ring->fd, 0, 1, flags, &arg, sizeof(arg)) < 0 && errno == ETIME)
			return ring_peek(ring);
	}
	return cqe;
}

/* Takes the next CQE, waiting for it. */
static inline struct cqe ring_next(struct ring *ring)
{
	struct cqe *cqe;

	while (!(cqe = ring_peek(ring)))
		ring_enter(ring, 0, 1);
	struct cqe copy = *cqe;
	__atomic_store_n(ring->cq_head, *ring->cq_head + 1, __ATOMIC_RELEASE);
	return copy;
}

/* Makes one request and waits for its result, again where that says so. */
static inline int ring_do(struct ring *ring, int opcode, int fd, const void *addr, unsigned len, uint64_t off)
{
	int res;

	do {
		ring_sqe(ring, opcode, fd, addr, len, off);
		ring_submit(ring);
		res = ring_next(ring).res;
	} while (is_again(res));
	return res;
}

/* Writes all of it, however short the writes are. */
static inline void ring_write_all(struct ring *ring, int fd, const char *from, unsigned len, uint64_t off)
{
	for (unsigned done = 0; done < len;) {
		int res = ring_do(ring, OP_WRITE, fd, from + done, len - done, off + done);

		if (res <= 0)
			gave_up("WRITE", res);
		done += res;
	}
}

/* A file of the working folder, new and empty. */
static inline int new_file(const char *name)
{
	return need(open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), name);
}

/* The byte that belongs at a place: no two neighbours, and no two blocks, are alike. */
static inline char pattern(unsigned at)
{
	return 'a' + (at + at / 4096 * 7) % 23;
}

static inline void fill(char *buffer, unsigned len, unsigned at)
{
	for (unsigned i = 0; i < len; i++)
		buffer[i] = pattern(at + i);
}

/* The first place where the bytes are not the pattern's; len if they are. */
static inline unsigned first_wrong(const char *buffer, unsigned len, unsigned at)
{
	unsigned i = 0;

	while (i < len && buffer[i] == pattern(at + i))
		i++;
	return i;
}

#endif
