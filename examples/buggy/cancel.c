/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: when its ASYNC_CANCEL has completed, a READ is taken for over, and its user_data is given to the next one. The
 * READ is over when its own CQE has come, and not before: that CQE is then taken for the next READ's.
 */
#include "ring.h"

enum { ROUNDS = 6, WORK_US = 1000, READING = 1, CANCEL = 2 };

/* Cancels the READ; returns whether it is over, with its result. */
static int cancel(struct ring *ring, int *result)
{
	int over = 0;
	struct cqe cqe;

	ring_sqe(ring, OP_ASYNC_CANCEL, -1, (void *)READING, 0, 0)->user_data = CANCEL;
	ring_submit(ring);
	do {
		cqe = ring_next(ring);
		if (cqe.user_data == READING) {
			*result = cqe.res;
			over = 1;
		}
	} while (cqe.user_data != CANCEL || is_again(cqe.res));
	/* Most often both CQEs are there by now. */
	while (!over && (IS_FIXED || ring_peek(ring))) {
		*result = ring_next(ring).res;
		over = 1;
	}
	return over;
}

int main(void)
{
	struct ring ring;

	ring_init(&ring, 8, 0);
	for (int round = 0; round < ROUNDS; round++) {
		int pipes[2], result = -ECANCELED;
		char byte = 0;

		need(pipe2(pipes, O_CLOEXEC), "pipe2");
		ring_sqe(&ring, OP_READ, pipes[0], &byte, 1, 0)->user_data = READING;
		ring_submit(&ring);
		cancel(&ring, &result);
		if (result >= 0 || (result != -ECANCELED && !is_again(result)))
			gave_up("the cancelled READ", result);
		for (int written = 0; !written || is_again(result); written = 1) {
			ring_sqe(&ring, OP_READ, pipes[0], &byte, 1, 0)->user_data = READING;
			ring_submit(&ring);
			if (!written) {
				usleep(WORK_US);
				need(write(pipes[1], "x", 1), "write");
			}
			result = ring_next(&ring).res;
		}
		if (result != 1)
			wrong("the READ of round %d is taken for cancelled, as the one before it was", round);
		close(pipes[0]);
		close(pipes[1]);
	}
	return 0;
}
