/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The bug: WRITEs to a pipe that are submitted together are taken for WRITEs that are made one after the other. */
#include "ring.h"

enum { WRITES = 8 };

int main(void)
{
	struct ring ring;
	char sent[WRITES], got[WRITES];
	int pipes[2];

	fill(sent, WRITES, 0);
	need(pipe2(pipes, O_CLOEXEC), "pipe2");
	ring_init(&ring, WRITES, 0);
	for (unsigned made = 0; made < WRITES;) {
		int results[WRITES];

		for (unsigned n = made; n < WRITES; n++) {
			struct sqe *sqe = ring_sqe(&ring, OP_WRITE, pipes[1], &sent[n], 1, 0);

			sqe->user_data = n;
#ifdef FIXED
			sqe->flags = n + 1 < WRITES ? IO_LINK : 0;
#endif
		}
		ring_submit(&ring);
		for (unsigned n = made; n < WRITES; n++) {
			struct cqe cqe = ring_next(&ring);

			results[cqe.user_data] = cqe.res;
		}
		/* A request that is to be made again has broken the chain: the rest is cancelled. */
		while (made < WRITES && results[made] == 1)
			made++;
		if (made < WRITES && !is_again(results[made]))
			gave_up("WRITE", results[made]);
#ifndef FIXED
		for (; made < WRITES; made++)
			if (is_again(results[made]))
				ring_do(&ring, OP_WRITE, pipes[1], &sent[made], 1, 0);
#endif
	}
	need(read(pipes[0], got, WRITES) == WRITES ? 0 : -1, "read");
	for (unsigned n = 0; n < WRITES; n++)
		if (got[n] != sent[n])
			wrong("byte %u of the pipe is not the one that was written as number %u", n, n);
	return 0;
}
