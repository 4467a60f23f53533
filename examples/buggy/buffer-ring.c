/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: a message is parsed when it is whole, and until then its pieces stay in the buffers of the buffer ring. If it
 * comes in more pieces than there are buffers, a RECV ends with -ENOBUFS, which is taken for the end of the connection.
 */
#include "ring.h"
#include <sys/socket.h>

enum { MESSAGES = 12, SIZE = 1024, BUFFERS = 4, GROUP = 1 };

struct buf { uint64_t addr; uint32_t len; uint16_t bid, tail; };
struct buf_reg { uint64_t ring_addr; uint32_t ring_entries; uint16_t bgid, flags; uint64_t resv[3]; };

static char memory[BUFFERS][SIZE];
static struct buf *buffers;

/* Gives a buffer to the ring. */
static void give(unsigned bid)
{
	uint16_t *at = &buffers[0].tail, tail = *at;
	struct buf *buf = &buffers[tail % BUFFERS];

	buf->addr = (uintptr_t)memory[bid];
	buf->len = SIZE;
	buf->bid = bid;
	__atomic_store_n(at, (uint16_t)(tail + 1), __ATOMIC_RELEASE);
}

/* Receives a message; returns how much of it has come. */
static unsigned receive(struct ring *ring, int fd, char *message)
{
	unsigned got = 0, held[BUFFERS], pieces = 0;

	while (got < SIZE) {
		struct sqe *sqe = ring_sqe(ring, OP_RECV, fd, NULL, SIZE - got, 0);

		sqe->flags = BUFFER_SELECT;
		sqe->buf_group = GROUP;
		ring_submit(ring);
		struct cqe cqe = ring_next(ring);

		if (cqe.res > 0) {
			held[pieces++] = cqe.flags >> BUFFER_SHIFT;
			memcpy(message + got, memory[held[pieces - 1]], cqe.res);
			got += cqe.res;
		} else if (cqe.res < 0 && !is_again(cqe.res) && cqe.res != -ENOBUFS) {
			gave_up("RECV", cqe.res);
		}
#ifdef FIXED
		while (pieces > 0)
			give(held[--pieces]);
#else
		if (cqe.res == 0 || cqe.res == -ENOBUFS)
			break;
#endif
	}
	while (pieces > 0)
		give(held[--pieces]);
	return got;
}

int main(void)
{
	struct ring ring;
	int pair[2];
	char message[SIZE], got[SIZE];

	need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
	ring_init(&ring, 4, 0);
	buffers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(buffers == MAP_FAILED ? -1 : 0, "mmap");
	struct buf_reg reg = { .ring_addr = (uintptr_t)buffers, .ring_entries = BUFFERS, .bgid = GROUP };

	need(syscall(SYS_REGISTER, ring.fd, REGISTER_PBUF_RING, &reg, 1), "io_uring_register");
	for (unsigned bid = 0; bid < BUFFERS; bid++)
		give(bid);
	for (unsigned n = 0; n < MESSAGES; n++) {
		fill(message, SIZE, n * SIZE);
		need(send(pair[0], message, SIZE, 0) == SIZE ? 0 : -1, "send");
		unsigned len = receive(&ring, pair[1], got);

		if (len < SIZE)
			wrong("message %u: %u bytes are still in the socket, and the connection is given up", n, SIZE - len);
		if (first_wrong(got, SIZE, n * SIZE) < SIZE)
			wrong("message %u has arrived changed", n);
	}
	return 0;
}
