/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: the reader of a write-ahead log believes the header of a record. A record whose WRITE was short is in the log
 * with its header and a part of its body, until the writer goes on (or never, if it has died); a checksum tells.
 */
#include "ring.h"

enum { RECORDS = 8, BODY = 3000 };

struct record {
	uint32_t length, checksum;
	char body[BODY];
};

static uint32_t checksum(const char *bytes, unsigned len)
{
	uint32_t sum = 2166136261u;

	while (len--)
		sum = (sum ^ (unsigned char)*bytes++) * 16777619u;
	return sum;
}

/* Reads the next record, if it is there. */
static int read_record(int fd, unsigned n, struct record *record)
{
	memset(record, 0, sizeof(*record));
	long got = pread(fd, record, sizeof(*record), n * sizeof(*record));

	if (got < (long)(2 * sizeof(uint32_t)) || record->length != BODY)
		return 0;
#ifdef FIXED
	if (got < (long)sizeof(*record) || record->checksum != checksum(record->body, BODY))
		return 0;
#endif
	return 1;
}

int main(void)
{
	struct ring ring;
	struct record record, read;
	int fd = new_file("torn-record.wal");
	unsigned accepted = 0;

	ring_init(&ring, 4, 0);
	for (unsigned n = 0; n < RECORDS; n++) {
		record.length = BODY;
		fill(record.body, BODY, n * BODY);
		record.checksum = checksum(record.body, BODY);
		for (unsigned done = 0; done < sizeof(record);) {
			int res = ring_do(&ring, OP_WRITE, fd, (char *)&record + done, sizeof(record) - done,
					  n * sizeof(record) + done);

			if (res < 0)
				gave_up("WRITE", res);
			done += res;
			/* The reader has its turn whenever something is written. */
			while (read_record(fd, accepted, &read)) {
				if (first_wrong(read.body, BODY, accepted * BODY) < BODY)
					wrong("record %u is accepted, and torn", accepted);
				accepted++;
			}
		}
	}
	if (accepted != RECORDS)
		wrong("%u records of %d are accepted", accepted, RECORDS);
	return 0;
}
