/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: io_uring_enter(2) that has submitted and waited is taken for a promise that a CQE is there. A signal ends the
 * wait, and the call still returns the number of SQEs that it took.
 */
#include "ring.h"
#include <sys/timerfd.h>

enum { TICKS = 8 };

int main(void)
{
	struct ring ring;
	struct itimerspec soon = { .it_value.tv_nsec = 300000 };
	int timer = need(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
	uint64_t expired;

	ring_init(&ring, 4, 0);
	for (uint64_t tick = 1; tick <= TICKS; tick++) {
		struct cqe cqe = { .res = -EAGAIN };

		while (is_again(cqe.res)) {
			need(timerfd_settime(timer, 0, &soon, NULL), "timerfd_settime");
			ring_sqe(&ring, OP_READ, timer, &expired, sizeof(expired), 0)->user_data = tick;
			while (ring_queued(&ring))
				ring_enter(&ring, ring_queued(&ring), 1);
#ifdef FIXED
			cqe = ring_next(&ring);
#else
			cqe = ring.cqes[*ring.cq_head & ring.cq_mask];
			__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
#endif
			if (cqe.user_data != tick)
				wrong("the CQE of tick %d is another's: nothing had completed", (int)tick);
		}
		if (cqe.res < 0)
			gave_up("READ", cqe.res);
	}
	return 0;
}
