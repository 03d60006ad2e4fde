/* Reads commands from the standard input as words of 32 bits, and writes the results of the header's functions. */
#include "ref.h"
#include <stdio.h>
#include <stdlib.h>

static uint32_t word(void)
{
    uint32_t value;
    if (fread(&value, 4, 1, stdin) != 1) {
        exit(0);
    }
    return value;
}

static void put(uint32_t value)
{
    fwrite(&value, 4, 1, stdout);
}

#if defined BLOCK || defined DOT
static uint32_t *words(uint32_t count)
{
    uint32_t *all = malloc(4 * (size_t)count + 4);
    uint32_t i;
    for (i = 0; i < count; i++) {
        all[i] = word();
    }
    return all;
}
#endif

#ifdef BLOCK
#ifdef TENSOR
#define TENSOR_SCALE t,
#else
#define TENSOR_SCALE
#endif
#ifdef SHIFTS
#define SUB shifts,
#else
#define SUB
#endif

static void block(void)
{
    uint32_t n = word(), mode = word(), t = word();
    uint32_t *x = words(n), *draws = words(n), *codes = words(0), *values = words(0), *shifts = words(0);
    uint32_t i, scale;
    codes = realloc(codes, 4 * n);
    values = realloc(values, 4 * n);
    shifts = realloc(shifts, 4 * n);
    for (i = 0; i < n; i++) {
        shifts[i] = 0;
    }
    (void)t;
    scale = ref_quantize_block(x, n, TENSOR_SCALE (ref_rounding)mode, mode == REF_STOCHASTIC ? draws : 0, SUB codes);
    ref_dequantize_block(scale, TENSOR_SCALE SUB codes, n, values);
    put(scale);
    for (i = 0; i < n; i++) {
#ifdef SHIFTS
        put(shifts[i / REF_SUB_BLOCK_SIZE]);
#else
        put(0);
#endif
        put(codes[i]);
        put(values[i]);
    }
    free(x), free(draws), free(codes), free(values), free(shifts);
}

static void dequantize(void)
{
    uint32_t n = word(), scale = word(), t = word();
    uint32_t *codes = words(n), *shifts = words(n), *values = malloc(4 * n);
    uint32_t i;
    (void)t;
    (void)shifts;
    ref_dequantize_block(scale, TENSOR_SCALE SUB codes, n, values);
    for (i = 0; i < n; i++) {
        put(values[i]);
    }
    free(codes), free(shifts), free(values);
}
#endif

#ifdef DOT
static void dot(void)
{
    uint32_t n = word(), blocks = word(), c = word();
    uint32_t *a = words(n), *b = words(n), *a_scales = words(blocks), *b_scales = words(blocks);
#ifdef BLOCK
    put(ref_dot(a, a_scales, b, b_scales, n, c));
#else
    put(ref_dot(a, b, n, c));
#endif
    free(a), free(b), free(a_scales), free(b_scales);
}
#endif

int main(void)
{
    for (;;) {
        uint32_t command = word();
        switch (command) {
#ifdef P3109
        case 0: {
            uint32_t code = word();
            ref_value value = ref_decode_exact(code);
            put((uint32_t)value.kind);
            put(value.negative);
            put(value.significand);
            put((uint32_t)value.exponent);
#ifdef FLOAT32
            put(ref_decode(code));
#endif
            break;
        }
        case 1: {
            uint32_t x = word(), mode = word(), saturation = word(), bits = word(), random = word();
            put(ref_project(x, (ref_rounding)mode, (ref_saturation)saturation, (int32_t)bits, random));
            break;
        }
        case 2: {
            uint64_t low = word();
            uint64_t x = low | (uint64_t)word() << 32;
            uint32_t mode = word(), saturation = word(), bits = word(), random = word();
            put(ref_project_float64(x, (ref_rounding)mode, (ref_saturation)saturation, (int32_t)bits, random));
            break;
        }
#else
        case 0:
            put(ref_decode_element(word()));
            break;
        case 1: {
            uint32_t x = word(), mode = word(), draw = word();
            put(ref_encode_element(x, (ref_rounding)mode, draw));
            break;
        }
#ifdef BLOCK
        case 2:
            block();
            break;
        case 3:
            dequantize();
            break;
#ifdef TENSOR
        case 4:
            put(ref_tensor_scale(word()));
            break;
#endif
#endif
#ifdef DOT
        case 5:
            dot();
            break;
#endif
#endif
        default:
            return 1;
        }
    }
}
