/* The code of the scale of a block of n elements: its exponent plus 127.
 * A NaN or Inf among the elements, or a scale beyond 2^MX_LARGEST_SCALE, gives MX_NAN_SCALE. A smaller scale than
 * 2^-MX_LARGEST_SCALE becomes that one. */
static inline uint32_t mx_block_scale(const uint32_t x[], uint32_t n)
{
    uint32_t largest = mx_largest_magnitude(x, n);
    int32_t exponent;
    if (largest >= MX_INFINITY) {
        return MX_NAN_SCALE;
    }
{% if flush_inputs and not rms %}    largest = largest < MX_SMALLEST_NORMAL ? 0 : largest;
{% endif %}    exponent = mx_scale_exponent(x, n, largest);
    if (exponent > MX_LARGEST_SCALE) {
        return MX_NAN_SCALE;
    }
    return (uint32_t)((exponent < -MX_LARGEST_SCALE ? -MX_LARGEST_SCALE : exponent) + 127);
}

/* The float32 of a scale's code: 2^(code - 127), or NaN. */
static inline uint32_t mx_decode_scale(uint32_t code)
{
    return code >= MX_NAN_SCALE ? MX_NAN : mx_float32(1, (int32_t)code - 127);
}

/* Quantizes a block of n elements{% if block_size > 0 %}, at most MX_BLOCK_SIZE; the last block of a row may have fewer{% else %}, all of a row{% endif %}. Returns the code of the scale.
 * `draws` has a random word for each element, and may be null for any mode but MX_STOCHASTIC.
 * Larger elements: see mx_element_code. Zero keeps its sign where codes have a -0. Subnormal float32 numbers count as {% if flush_inputs %}zeros{% else %}they are{% endif %}.{% if own_rounding %}
 * The mode of the elements is MX_OWN_ROUNDING, for any `rounding`.{% endif %}
 * A block that is NaN has the scale MX_NAN_SCALE, and zeros for codes.{% if flush_blocks %}
 * A block of float32 subnormals and zeros becomes zeros.{% endif %}{% if square %}
 * Blocks are squares of MX_BLOCK_SIZE * MX_BLOCK_SIZE elements, in any order.{% endif %} */
static inline uint32_t mx_quantize_block(const uint32_t x[], uint32_t n, mx_rounding rounding, const uint32_t draws[],
                                         uint32_t codes[])
{
    uint32_t scale = mx_block_scale(x, n);
    int32_t exponent = (int32_t)scale - 127;
    uint32_t limit = MX_LARGEST_CODE;
    uint32_t i;
    if (MX_EMAX + exponent > 127) {
        /* The largest number below 2^128 of a block that has larger ones. */
        uint32_t top = ((uint32_t)(128 - exponent - MX_EMIN) << MX_MANTISSA_BITS) + (1u << MX_MANTISSA_BITS) - 1u;
        limit = top < limit ? top : limit;
    }
    for (i = 0; i < n; i++) {
        uint32_t draw = rounding == MX_STOCHASTIC ? draws[i] : 0;
        uint32_t magnitude = x[i] & ~MX_SIGN;
{% if flush_blocks %}        if (mx_largest_magnitude(x, n) < MX_SMALLEST_NORMAL) {
            magnitude = 0;
        }
{% elif flush_inputs %}        if (magnitude < MX_SMALLEST_NORMAL) {
            magnitude = 0;
        }
{% endif %}        codes[i] = scale == MX_NAN_SCALE ? 0 : mx_element_code(magnitude, x[i] & MX_SIGN, exponent, limit, rounding, draw);
    }
    return scale;
}

/* The float32 numbers of a block: element * 2^(scale - 127). All are NaN with the scale MX_NAN_SCALE. A number with too many bits for
 * float32 is cut off toward zero; a number of 2^128 or more is Inf. */
static inline void mx_dequantize_block(uint32_t scale, const uint32_t codes[], uint32_t n, uint32_t values[])
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        values[i] = scale >= MX_NAN_SCALE ? MX_NAN : mx_scaled_element(codes[i], (int32_t)scale - 127);
    }
}
