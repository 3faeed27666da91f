/* Attention on Hopper's tensor cores with heads of 128: half as many queries pass at a time, for
 * the sake of registers. */
#define FLASH hopper
#define WARPGROUP
#define HEAD 128
#define ROW_TILES 1
#define KEYS 64
#define PASSING 32
#define FORWARD_BLOCKS 3
#define KEYS_BLOCKS 2
#define QUERIES_BLOCKS 4
#include "tensor/cuda/attention/flash_body.cuh"
