/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: more requests are in flight than the CQ has entries, and the program only ever looks at the CQ. Once that has
 * overflown (IORING_SQ_CQ_OVERFLOW), io_uring_enter(2) with IORING_ENTER_GETEVENTS must fetch the rest.
 */
#include "ring.h"

enum { READS = 40, BATCH = 4, CQ = 4, IN_FLIGHT = 12, WORK_US = 300, PATIENCE = 800 };

int main(void)
{
	struct ring ring;
	int fd = new_file("overflow.data"), passes_in_vain = 0;
	unsigned made = 0, done = 0;
	char bytes[READS];

	need(pwrite(fd, "x", 1, 0), "pwrite");
	ring_init(&ring, BATCH, CQ);
	while (done < READS) {
		for (int i = 0; i < BATCH && made < READS && made - done < IN_FLIGHT; i++, made++)
			ring_sqe(&ring, OP_READ, fd, &bytes[made], 1, 0)->user_data = made;
		ring_submit(&ring);
		usleep(WORK_US);
#ifdef FIXED
		if (__atomic_load_n(ring.sq_flags, __ATOMIC_RELAXED) & SQ_CQ_OVERFLOW)
			syscall(SYS_ENTER, ring.fd, 0, 0, ENTER_GETEVENTS, NULL, 0);
#endif
		passes_in_vain = ring_peek(&ring) ? 0 : passes_in_vain + 1;
		if (passes_in_vain > PATIENCE)
			wrong("%u READs of %d have no CQE", made - done, READS);
		while (ring_peek(&ring)) {
			int res = ring_next(&ring).res;

			if (res < 0 && !is_again(res))
				gave_up("READ", res);
			done++;
		}
	}
	return 0;
}
