/* The code of an element of a block with this exponent field. Subnormal float32 numbers count as zeros, Inf as 2^128 and NaN as
 * 1.5 * 2^128. The code may be one step beyond the largest one. */
static inline uint32_t mx_step_code(uint32_t x, uint32_t field)
{
    uint32_t magnitude = x & ~MX_SIGN;
    if (magnitude < MX_SMALLEST_NORMAL) {
        magnitude = 0;
    }
    if (magnitude > MX_INFINITY) {
        magnitude = MX_NAN;
    }
    return mx_element_code(magnitude, x & MX_SIGN, (int32_t)field - 127, MX_LARGEST_CODE + 1u, MX_OWN_ROUNDING, 0);
}

/* The code of the scale of a block of n elements: the exponent field of the largest magnitude, NaN and Inf included. The field is one
 * more if a finite block has a number that is rounded beyond the largest element; the most negative element is none. */
static inline uint32_t mx_block_scale(const uint32_t x[], uint32_t n)
{
    uint32_t field = mx_largest_magnitude(x, n) >> 23;
    uint32_t i;
    for (i = 0; i < n && field < MX_TOP_SCALE; i++) {
        if ((x[i] & MX_SIGN) == 0 && mx_step_code(x[i], field) > MX_LARGEST_CODE) {
            return field + 1u;
        }
    }
    return field;
}

/* The float32 of a scale's code: 2^(code - 127). MX_TOP_SCALE, which stands for 2^128, gives Inf. */
static inline uint32_t mx_decode_scale(uint32_t code)
{
    return mx_float32(1, (int32_t)code - 127);
}

/* Quantizes a block of n elements, at most MX_BLOCK_SIZE; the last block of a row may have fewer. Returns the code of the scale.
 * The mode of the elements is MX_OWN_ROUNDING, for any `rounding` and `draws`. -0 becomes 0. In a block with a NaN or Inf, whose scale is
 * MX_TOP_SCALE, the finite numbers are rounded to the steps of this scale. */
static inline uint32_t mx_quantize_block(const uint32_t x[], uint32_t n, mx_rounding rounding, const uint32_t draws[],
                                         uint32_t codes[])
{
    uint32_t scale = mx_block_scale(x, n);
    uint32_t i;
    (void)rounding;
    (void)draws;
    for (i = 0; i < n; i++) {
        codes[i] = mx_step_code(x[i], scale);
    }
    return scale;
}

/* The float32 numbers of a block: element * 2^(scale - 127), cut off toward zero where float32 is too coarse. With the scale MX_TOP_SCALE
 * a number of +-2^128 is +-Inf, and a larger one NaN. */
static inline void mx_dequantize_block(uint32_t scale, const uint32_t codes[], uint32_t n, uint32_t values[])
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        uint32_t code = codes[i] & MX_ELEMENT_MASK;
        uint32_t magnitude = (code & MX_ELEMENT_SIGN) != 0 ? (0u - code) & MX_ELEMENT_MASK : code;
        values[i] = scale >= MX_TOP_SCALE && magnitude > (1u << MX_MANTISSA_BITS) ? MX_NAN : mx_scaled_element(code, (int32_t)scale - 127);
    }
}
