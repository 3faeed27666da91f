/* Attention on tensor cores with heads of 64. */
#define HEAD 64
#define ROW_TILES 2
#define KEYS 64
#define PASSING 64
#define AT_ONCE 32
#define BLOCKS 3
#include "tensor/cuda/flash_body.cuh"
