/* Attention on tensor cores with heads of 128: half as many queries pass at a time, for the sake of
 * registers. */
#define FLASH flash
#define HEAD 128
#define ROW_TILES 1
#define KEYS 64
#define PASSING 32
#define AT_ONCE 16
#define FORWARD_BLOCKS 2
#define KEYS_BLOCKS 2
#define QUERIES_BLOCKS 2
#include "tensor/cuda/attention/flash_body.cuh"
