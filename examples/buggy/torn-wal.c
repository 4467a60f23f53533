/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: the reader of a write-ahead log believes the header of a record. The writer is right: it tells of a record on
 * its standard output once the record is durable. After a power cut the last record may be there in part. Run with
 * "check", the program reads the log as after a power cut, and what the writer has told from standard input.
 */
#include "ring.h"

enum { RECORDS = 5, BODY = 3000 };

struct record {
	uint32_t length, checksum;
	char body[BODY];
};

static struct record record;

static uint32_t checksum(const char *bytes, unsigned len)
{
	uint32_t sum = 2166136261u;

	while (len--)
		sum = (sum ^ (unsigned char)*bytes++) * 16777619u;
	return sum;
}

static int is_whole(long got)
{
	if (got < (long)(2 * sizeof(uint32_t)) || record.length != BODY)
		return 0;
#ifdef FIXED
	if (got < (long)sizeof(record) || record.checksum != checksum(record.body, BODY))
		return 0;
#endif
	return 1;
}

static int check(void)
{
	int fd = open("torn-wal.log", O_RDONLY | O_CLOEXEC);
	unsigned n = 0, told = 0;

	for (int c; (c = getchar()) != EOF;)
		told += c == '\n';
	for (; fd >= 0; n++) {
		memset(&record, 0, sizeof(record));
		if (!is_whole(pread(fd, &record, sizeof(record), n * sizeof(record))))
			break;
		if (first_wrong(record.body, BODY, n * BODY) < BODY)
			wrong("record %u is accepted, and torn", n);
	}
	if (n < told)
		wrong("%u records of %u are there", n, told);
	return 0;
}

int main(int argc, char **argv)
{
	struct ring ring;

	if (argc > 1 && !strcmp(argv[1], "check"))
		return check();
	int fd = new_file("torn-wal.log"), folder = need(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ".");

	need(fsync(folder), "fsync");
	ring_init(&ring, 4, 0);
	for (unsigned n = 0; n < RECORDS; n++) {
		record.length = BODY;
		fill(record.body, BODY, n * BODY);
		record.checksum = checksum(record.body, BODY);
		ring_write_all(&ring, fd, (char *)&record, sizeof(record), n * sizeof(record));
		int synced = ring_do(&ring, OP_FSYNC, fd, NULL, 0, 0);

		if (synced < 0)
			gave_up("FSYNC", synced);
		printf("record %u\n", n);
		fflush(stdout);
	}
	return 0;
}
