/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The bug: a multishot ACCEPT is submitted once. Without IORING_CQE_F_MORE a CQE is its last: it has to be made again. */
#include "ring.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { CONNECTIONS = 8, PATIENCE_MS = 300 };

static void arm(struct ring *ring, int listener)
{
	ring_sqe(ring, OP_ACCEPT, listener, NULL, 0, 0)->ioprio = ACCEPT_MULTISHOT;
	ring_submit(ring);
}

int main(void)
{
	struct ring ring;
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(sa_family_t);
	int listener = need(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	/* A name that nobody has. */
	need(bind(listener, (struct sockaddr *)&at, len), "bind");
	len = sizeof(at);
	need(getsockname(listener, (struct sockaddr *)&at, &len), "getsockname");
	need(listen(listener, CONNECTIONS), "listen");
	ring_init(&ring, 4, 0);
	arm(&ring, listener);
	for (int n = 0; n < CONNECTIONS;) {
		int client = need(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

		need(connect(client, (struct sockaddr *)&at, len), "connect");
		for (int accepted = -1; accepted < 0;) {
			if (!ring_wait_for(&ring, PATIENCE_MS))
				wrong("connection %d is not accepted: the ACCEPT had ended", n);
			struct cqe cqe = ring_next(&ring);

			if (cqe.res < 0 && !is_again(cqe.res))
				gave_up("ACCEPT", cqe.res);
			accepted = cqe.res;
			/* Without the bug: every last CQE. With it: only errors. */
			if (!(cqe.flags & F_MORE) && (IS_FIXED || accepted < 0))
				arm(&ring, listener);
		}
		n++;
	}
	return 0;
}
