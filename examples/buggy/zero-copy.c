/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: the buffer of a SEND_ZC is written to after the CQE that has its result. The kernel may read it until the
 * second CQE, the notification (IORING_CQE_F_NOTIF).
 */
#include "ring.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { SENDS = 8, SIZE = 1024, WORK_US = 200 };

static int receiver, notified;

/* Two ends of a TCP connection. */
static int connection(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = need(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	int sender = need(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	need(bind(listener, (struct sockaddr *)&at, len), "bind");
	need(listen(listener, 1), "listen");
	need(getsockname(listener, (struct sockaddr *)&at, &len), "getsockname");
	need(connect(sender, (struct sockaddr *)&at, len), "connect");
	receiver = need(accept(listener, NULL, NULL), "accept");
	close(listener);
	return sender;
}

/* Counts the notifications that are in the CQ, without taking one. */
static int notifications(struct ring *ring)
{
	int count = notified;

	for (uint32_t at = *ring->cq_head; at != __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE); at++)
		count += !!(ring->cqes[at & ring->cq_mask].flags & F_NOTIF);
	return count;
}

/* Takes the CQE of a SEND_ZC; notifications that come before are counted. */
static struct cqe result(struct ring *ring)
{
	for (;;) {
		struct cqe cqe = ring_next(ring);

		if (!(cqe.flags & F_NOTIF))
			return cqe;
		notified++;
	}
}

int main(void)
{
	struct ring ring;
	char buffer[SIZE], got[SIZE];
	int sender = connection(), expected = 0;

	ring_init(&ring, 4, 64);
	for (unsigned n = 0; n < SENDS; n++) {
		usleep(WORK_US);
		if (notifications(&ring) < expected)
			wrong("message %u is written over one that the kernel may still read", n);
		fill(buffer, SIZE, n * SIZE);
		for (unsigned done = 0; done < SIZE;) {
			ring_sqe(&ring, OP_SEND_ZC, sender, buffer + done, SIZE - done, 0);
			ring_submit(&ring);
			struct cqe cqe = result(&ring);

			expected += !!(cqe.flags & F_MORE);
			if (cqe.res > 0)
				done += cqe.res;
			else if (!is_again(cqe.res))
				gave_up("SEND_ZC", cqe.res);
#ifdef FIXED
			while (notified < expected)
				notified += !!(ring_next(&ring).flags & F_NOTIF);
#endif
		}
		need(recv(receiver, got, SIZE, MSG_WAITALL) == SIZE ? 0 : -1, "recv");
		if (first_wrong(got, SIZE, n * SIZE) < SIZE)
			wrong("message %u has arrived changed", n);
	}
	return 0;
}
