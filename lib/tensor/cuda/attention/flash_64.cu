/* Attention on tensor cores with heads of 64. */
#define FLASH flash
#define HEAD 64
#define ROW_TILES 2
#define KEYS 64
#define PASSING 64
#define AT_ONCE 32
#define FORWARD_BLOCKS 2
#define KEYS_BLOCKS 3
#define QUERIES_BLOCKS 3
#include "tensor/cuda/attention/flash_body.cuh"
