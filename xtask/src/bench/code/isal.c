/*
 * Measures ISA-L, or shows what it computes. Compiled by `cargo xtask bench code`.
 *
 *   isal speed K M BYTES SECONDS OUT   prints GB of data a second encoded and rebuilt, and writes
 *                                      parity and rebuilt fragments to OUT
 *   isal vector K M BYTES              prints the parity in hexadecimal
 *
 * The data, the order of work and what counts are those of crates/engine/examples/code_speed.rs.
 */
#include <isa-l.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAGMENTS_MAX 64
#define DATA_MAX 32
#define BATCHES_MAX 4096
/* Data of one batch: long beside the clock's resolution. */
#define BATCH_BYTES (64u << 20)
#define PAGE 4096

static int k, m, lost;
static size_t size;
static unsigned char *data, *parity, *rebuilt;
static unsigned char *fragments[FRAGMENTS_MAX], *outputs[FRAGMENTS_MAX];
static unsigned char generator[FRAGMENTS_MAX * DATA_MAX];
static unsigned char encode_tables[32 * DATA_MAX * DATA_MAX];

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *allocate(size_t bytes)
{
	void *memory = aligned_alloc(PAGE, (bytes + PAGE) / PAGE * PAGE);
	if (!memory)
		exit(2);
	memset(memory, 1, bytes);
	return memory;
}

static void prepare(void)
{
	uint64_t state = 0x9e3779b97f4a7c15u;

	data = allocate(size * (size_t)(k + m));
	parity = data + size * (size_t)k;
	rebuilt = allocate(size * (size_t)m);
	for (size_t at = 0; at + 8 <= size * (size_t)k; at += 8) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(data + at, &state, 8);
	}
	for (int i = 0; i < k + m; i++)
		fragments[i] = data + (size_t)i * size;
	for (int i = 0; i < m; i++)
		outputs[i] = rebuilt + (size_t)i * size;
	lost = m < k ? m : k;
	gf_gen_cauchy1_matrix(generator, k + m, k);
	ec_init_tables(k, m, generator + k * k, encode_tables);
}

static void encode(void)
{
	ec_encode_data((int)size, k, m, encode_tables, fragments, fragments + k);
}

/* Rebuilds the first data fragments from all that is left: the matrix counts, as in a pull. */
static void decode(void)
{
	static unsigned char rows[DATA_MAX * DATA_MAX], inverse[DATA_MAX * DATA_MAX];
	static unsigned char tables[32 * DATA_MAX * DATA_MAX];

	memcpy(rows, generator + lost * k, (size_t)(k * k));
	if (gf_invert_matrix(rows, inverse, k))
		exit(3);
	ec_init_tables(k, lost, inverse, tables);
	ec_encode_data((int)size, k, lost, tables, fragments + lost, outputs);
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

/* GB of data a second, the median of batches. */
static double measure(void (*work)(void), double seconds)
{
	static double batches[BATCHES_MAX];
	size_t bytes = size * (size_t)k, repeats = BATCH_BYTES / bytes + 1;
	double end = now_s() + seconds;
	int count = 0;

	work();
	do {
		double start = now_s();
		for (size_t i = 0; i < repeats; i++)
			work();
		batches[count++] = (double)(bytes * repeats) / (now_s() - start) / 1e9;
	} while (now_s() < end && count < BATCHES_MAX);
	qsort(batches, (size_t)count, sizeof *batches, compare);
	return batches[count / 2];
}

int main(int count, char **arguments)
{
	if (count < 5)
		return 1;
	k = atoi(arguments[2]);
	m = atoi(arguments[3]);
	size = (size_t)atol(arguments[4]);
	if (k < 1 || k > DATA_MAX || m < 1 || m > DATA_MAX || size < 8)
		return 1;
	prepare();
	if (!strcmp(arguments[1], "vector")) {
		encode();
		for (size_t at = 0; at < size * (size_t)m; at++)
			printf("%02x", parity[at]);
		printf("\n");
		return 0;
	}
	if (count < 7)
		return 1;
	double encoded = measure(encode, atof(arguments[5]));
	double decoded = measure(decode, atof(arguments[5]));
	FILE *out = fopen(arguments[6], "wb");
	if (!out)
		return 2;
	size_t written = fwrite(parity, size, (size_t)m, out) +
			 fwrite(rebuilt, size, (size_t)lost, out);
	if (fclose(out) || written != (size_t)(m + lost))
		return 2;
	printf("encode %.3f\ndecode %.3f\n", encoded, decoded);
	return 0;
}
