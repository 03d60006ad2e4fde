/* Quantizes a block of n elements, at most MX_BLOCK_SIZE; the last block of a row may have fewer. Returns the code of the scale: the
 * exponent field of the largest{% if keeps_special %} finite{% endif %} magnitude.
 * `draws` has a random word for each element, and may be null for any mode but MX_STOCHASTIC.
 * Larger elements saturate. Zero keeps its sign.
{% if shifts %} * `shifts` gets a number for each MX_SUB_BLOCK_SIZE elements, 0 to MX_LARGEST_SHIFT: by how much the largest exponent of the
 * sub-block is smaller than that of the block. The last sub-block may be shorter.
 * Subnormal float32 numbers count as zeros. A NaN or Inf makes the block NaN: MX_NAN_SCALE, and zeros for shifts and codes. */
{% else %} * NaN and Inf have no code, and the scale does not count them: their code is MX_NOT_FINITE, and the caller keeps the number. */
#define MX_NOT_FINITE 0xffffffffu

{% endif %}static inline uint32_t mx_quantize_block(const uint32_t x[], uint32_t n, mx_rounding rounding, const uint32_t draws[],
                                         {% if shifts %}uint32_t shifts[], {% endif %}uint32_t codes[])
{
    uint32_t field = mx_largest_magnitude(x, n) >> 23;
    uint32_t i;
{% if shifts %}    uint32_t shift = 0;
{% endif %}    for (i = 0; i < n; i++) {
        uint32_t draw = rounding == MX_STOCHASTIC ? draws[i] : 0;
        uint32_t magnitude = x[i] & ~MX_SIGN;
{% if shifts %}        if (i % MX_SUB_BLOCK_SIZE == 0) {
            uint32_t rest = n - i < MX_SUB_BLOCK_SIZE ? n - i : MX_SUB_BLOCK_SIZE;
            shift = field - (mx_largest_magnitude(x + i, rest) >> 23);
            shift = field == MX_NAN_SCALE ? 0 : shift > MX_LARGEST_SHIFT ? MX_LARGEST_SHIFT : shift;
            shifts[i / MX_SUB_BLOCK_SIZE] = shift;
        }
        if (field == MX_NAN_SCALE) {
            codes[i] = 0;
            continue;
        }
        if (magnitude < MX_SMALLEST_NORMAL) {
            magnitude = 0;
        }
        codes[i] = mx_element_code(magnitude, x[i] & MX_SIGN, (int32_t)field - 127 - (int32_t)shift, MX_LARGEST_CODE, rounding, draw);
{% else %}        if (magnitude >= MX_INFINITY) {
            codes[i] = MX_NOT_FINITE;
            continue;
        }
        codes[i] = mx_element_code(magnitude, x[i] & MX_SIGN, (int32_t)field - 127, MX_LARGEST_CODE, rounding, draw);
{% endif %}    }
    return field;
}

/* The float32 numbers of a block: element * 2^(scale - 127{% if shifts %} - shift{% endif %}). All are NaN with the scale MX_NAN_SCALE.{% if not shifts %} MX_NOT_FINITE gives NaN.{% endif %} A number
 * with too many bits for float32 is cut off toward zero. */
static inline void mx_dequantize_block(uint32_t scale, {% if shifts %}const uint32_t shifts[], {% endif %}const uint32_t codes[], uint32_t n, uint32_t values[])
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        if (scale >= MX_NAN_SCALE{% if not shifts %} || codes[i] == MX_NOT_FINITE{% endif %}) {
            values[i] = MX_NAN;
        } else {
            values[i] = mx_scaled_element(codes[i], (int32_t)scale - 127{% if shifts %} - (int32_t)shifts[i / MX_SUB_BLOCK_SIZE]{% endif %});
        }
    }
}
