/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: io_uring_enter(2) that is interrupted while it waits is taken for a request that has failed, and the request
 * is made once more. The first one is still in flight, and has the buffer.
 */
#include "ring.h"
#include <sys/timerfd.h>

enum { TICKS = 8 };

int main(void)
{
	struct ring ring;
	struct itimerspec soon = { .it_value.tv_nsec = 300000 };
	int timer = need(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
	unsigned made = 0, completed = 0;
	uint64_t expired;

	ring_init(&ring, 4, 0);
	for (int tick = 0; tick < TICKS; tick++) {
		need(timerfd_settime(timer, 0, &soon, NULL), "timerfd_settime");
		for (int res = -EAGAIN; is_again(res);) {
			ring_sqe(&ring, OP_READ, timer, &expired, sizeof(expired), 0);
			ring_submit(&ring);
			made++;
			while (!ring_peek(&ring)) {
				res = ring_enter(&ring, 0, 1);
#ifndef FIXED
				if (res < 0)
					break;
#endif
			}
			if (ring_peek(&ring)) {
				res = ring_next(&ring).res;
				completed++;
				if (res < 0 && !is_again(res))
					gave_up("READ", res);
			}
		}
	}
	if (made != completed)
		wrong("%u READs of %u are still in flight, with a buffer on this stack", made - completed, made);
	return 0;
}
