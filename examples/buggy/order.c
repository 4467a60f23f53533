/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The bug: the n-th CQE is taken for that of the n-th SQE. Requests complete in any order; user_data says whose it is. */
#include "ring.h"

enum { READS = 8 };

int main(void)
{
	struct ring ring;
	int fd = new_file("order.data"), results[READS];
	char bytes[READS];

	fill(bytes, READS, 0);
	need(pwrite(fd, bytes, READS, 0) == READS ? 0 : -1, "pwrite");
	memset(bytes, 0, READS);
	ring_init(&ring, READS, 0);
	for (unsigned n = 0; n < READS; n++)
		ring_sqe(&ring, OP_READ, fd, &bytes[n], 1, n)->user_data = n;
	ring_submit(&ring);
	for (unsigned done = 0; done < READS; done++) {
		struct cqe cqe = ring_next(&ring);
		unsigned n = IS_FIXED ? cqe.user_data : done;

		results[n] = cqe.res;
		/* Until the CQE is there, the byte may be anything. */
		if (!is_again(cqe.res) && cqe.res >= 0 && cqe.user_data != n)
			wrong("byte %u is used, and byte %d has been read", n, (int)cqe.user_data);
	}
	for (unsigned n = 0; n < READS; n++) {
		if (is_again(results[n]))
			results[n] = ring_do(&ring, OP_READ, fd, &bytes[n], 1, n);
		if (results[n] < 0)
			gave_up("READ", results[n]);
		if (first_wrong(&bytes[n], 1, n) == 0)
			wrong("byte %u is not the file's", n);
	}
	return 0;
}
