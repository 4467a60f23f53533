/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: a READ and a WRITE that are linked copy a block, and only errors of the READ are checked. A READ that is
 * short breaks the link: the WRITE is cancelled.
 */
#include "ring.h"

enum { BLOCK = 4096, BLOCKS = 4, READING = 1, WRITING = 2 };

static char block[BLOCK], got[BLOCK];

int main(void)
{
	struct ring ring;
	int from = new_file("link.from"), to = new_file("link.to");

	for (int n = 0; n < BLOCKS; n++) {
		fill(block, BLOCK, n * BLOCK);
		need(pwrite(from, block, BLOCK, n * BLOCK) == BLOCK ? 0 : -1, "pwrite");
	}
	ring_init(&ring, 4, 0);
	for (unsigned at = 0; at < BLOCK * BLOCKS;) {
		unsigned len = BLOCK - at % BLOCK;
		int read = 0, written = 0;
		struct sqe *sqe = ring_sqe(&ring, OP_READ, from, block, len, at);

		sqe->flags = IO_LINK;
		sqe->user_data = READING;
		ring_sqe(&ring, OP_WRITE, to, block, len, at)->user_data = WRITING;
		ring_submit(&ring);
		for (int i = 0; i < 2; i++) {
			struct cqe cqe = ring_next(&ring);

			*(cqe.user_data == READING ? &read : &written) = cqe.res;
		}
		if (is_again(read))
			continue;
		if (read < 0)
			gave_up("READ", read);
#ifdef FIXED
		if (written == -ECANCELED)
			written = ring_do(&ring, OP_WRITE, to, block, read, at);
		if (written < 0 && !is_again(written))
			gave_up("WRITE", written);
		at += written > 0 ? written : 0;
#else
		if (written < 0 && written != -ECANCELED && !is_again(written))
			gave_up("WRITE", written);
		if (is_again(written) || (written > 0 && (unsigned)written < len))
			ring_write_all(&ring, to, block, len, at);
		at += len;
#endif
	}
	for (int n = 0; n < BLOCKS; n++) {
		memset(got, 0, BLOCK);
		need(pread(to, got, BLOCK, n * BLOCK), "pread");
		if (first_wrong(got, BLOCK, n * BLOCK) < BLOCK)
			wrong("block %d is not copied: the link was broken", n);
	}
	return 0;
}
