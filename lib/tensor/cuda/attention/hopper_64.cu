/* Attention on Hopper's tensor cores with heads of 64. */
#define FLASH hopper
#define WARPGROUP
#define HEAD 64
#define ROW_TILES 2
#define KEYS 64
#define PASSING 64
#define FORWARD_BLOCKS 3
#define KEYS_BLOCKS 3
#define QUERIES_BLOCKS 4
#include "tensor/cuda/attention/flash_body.cuh"
