/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: a multishot RECV that finds no buffer in the buffer ring (-ENOBUFS) is taken for the end of the connection. A
 * message that comes in many pieces takes as many buffers; the rest of it is still in the socket.
 */
#include "ring.h"
#include <sys/socket.h>

enum { MESSAGES = 12, SIZE = 1024, BUFFERS = 4, GROUP = 1, RECV_MULTISHOT = 1 << 1 };

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
	static int armed;
	unsigned got = 0;

	while (got < SIZE) {
		if (!armed) {
			struct sqe *sqe = ring_sqe(ring, OP_RECV, fd, NULL, 0, 0);

			sqe->ioprio = RECV_MULTISHOT;
			sqe->flags = BUFFER_SELECT;
			sqe->buf_group = GROUP;
			ring_submit(ring);
		}
		struct cqe cqe = ring_next(ring);

		armed = !!(cqe.flags & F_MORE);
		if (cqe.res > 0) {
			unsigned bid = cqe.flags >> BUFFER_SHIFT;

			memcpy(message + got, memory[bid], cqe.res);
			got += cqe.res;
			give(bid);
		} else if (cqe.res == 0 || (cqe.res == -ENOBUFS && !IS_FIXED)) {
			break;
		} else if (!is_again(cqe.res) && cqe.res != -ENOBUFS) {
			gave_up("RECV", cqe.res);
		}
	}
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
