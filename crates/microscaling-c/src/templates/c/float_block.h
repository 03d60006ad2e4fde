{% set t = ", uint32_t tensor_scale" if tensor_scale else "" %}/* The code of the scale of a block of n elements: ((largest / Q){% if tensor_scale %} / tensor_scale{% endif %}{% if headroom %} * h{% endif %}), each operation in float32, then limited and rounded half
 * to even. {% if special_elements %}NaN and Inf do not count; a block of NaN alone{% else %}A NaN or Inf{% endif %}{% if tensor_scale %}, also of the tensor scale,{% endif %} gives MX_NAN_SCALE{% if tensor_scale %}. A tensor scale of 0 gives the smallest scale{% endif %}. */
static inline uint32_t mx_block_scale(const uint32_t x[], uint32_t n{{ t }})
{
    uint32_t largest = mx_largest_magnitude(x, n);
    uint32_t scale;
    if (largest >= MX_INFINITY{% if tensor_scale %} || tensor_scale >= MX_INFINITY{% endif %}) {
        return MX_NAN_SCALE;
    }
{% if flush_inputs %}    largest = largest < MX_SMALLEST_NORMAL ? 0 : largest;
{% endif %}{% if tensor_scale %}    if (tensor_scale == 0) {
        return mx_encode_scale(MX_LEAST_SCALE);
    }
{% endif %}    scale = mx_quotient(largest, MX_LARGEST_UNIT);
{% if tensor_scale %}    scale = mx_quotient(scale, tensor_scale);
{% endif %}{% if headroom %}    scale = mx_product(scale, MX_HEADROOM);
{% endif %}    return mx_encode_scale(scale);
}

/* Quantizes a block of n elements{% if block_size > 0 %}, at most MX_BLOCK_SIZE; the last block of a row may have fewer{% else %}, all of a row{% endif %}. Returns the code of the scale c.
{% if tensor_scale %} * `tensor_scale` is a positive float32, as mx_tensor_scale gives. {% else %} * {% endif %}`draws` has a random word for each element, and may be null for any
 * mode but MX_STOCHASTIC. An element is {% if divides %}x / c in float32, rounded to the element's numbers{% else %}x * {% if tensor_scale %}((1 / tensor_scale) / c){% else %}(1 / c){% endif %}, each operation in float32, rounded to the element's numbers; where that
 * factor is Inf, x {% if tensor_scale %}/ (tensor_scale * c){% else %}/ c{% endif %}{% endif %}. Larger elements: see mx_element_code. Zero keeps its sign where codes have a -0.{% if flush_inputs %}
 * Subnormal float32 numbers count as zeros.{% endif %}{% if own_rounding %}
 * The mode of the elements is MX_OWN_ROUNDING, for any `rounding`.{% endif %}
 * {% if special_elements %}NaN and Inf are elements, but Inf is 0 beside the scale 0. A block of NaN alone{% else %}A block with a NaN or Inf{% endif %}{% if tensor_scale %}, or whose tensor_scale * c is Inf,{% endif %} has the scale MX_NAN_SCALE, and {% if special_elements %}NaN{% else %}zeros{% endif %} for codes.{% if square %}
 * Blocks are squares of MX_BLOCK_SIZE * MX_BLOCK_SIZE elements, in any order.{% endif %} */
static inline uint32_t mx_quantize_block(const uint32_t x[], uint32_t n{{ t }}, mx_rounding rounding,
                                         const uint32_t draws[], uint32_t codes[])
{
    uint32_t code = mx_block_scale(x, n{% if tensor_scale %}, tensor_scale{% endif %});
    uint32_t scale = 0, inverse = 0, i;
    if (code != MX_NAN_SCALE) {
        uint32_t own = mx_decode_scale(code);
{% if tensor_scale %}        scale = mx_product(tensor_scale, own);
        inverse = tensor_scale == 0 ? 0 : mx_quotient(0x3f800000u, tensor_scale);
        inverse = mx_quotient(inverse, own);
        if (scale >= MX_INFINITY) {
            code = MX_NAN_SCALE;
        }
{% else %}        scale = own;
        inverse = {% if divides %}MX_INFINITY{% else %}mx_quotient(0x3f800000u, own){% endif %};
{% endif %}    }
    for (i = 0; i < n; i++) {
        uint32_t draw = rounding == MX_STOCHASTIC ? draws[i] : 0;
        uint32_t magnitude = x[i] & ~MX_SIGN;
        if (code == MX_NAN_SCALE) {
            codes[i] = {% if special_elements %}MX_NAN_CODE{% else %}0{% endif %};
            continue;
        }
{% if special_elements %}        if (magnitude > MX_INFINITY || (magnitude == MX_INFINITY && scale != 0)) {
            codes[i] = mx_special_code(x[i]);
            continue;
        }
{% endif %}        if (scale == 0{% if flush_inputs %} || magnitude < MX_SMALLEST_NORMAL{% endif %}) {
            magnitude = 0;
        } else if (inverse >= MX_INFINITY) {
            magnitude = mx_quotient(magnitude, scale);
        } else {
            magnitude = mx_product(magnitude, inverse);
        }
        codes[i] = mx_element_code(magnitude, x[i] & MX_SIGN, 0, MX_LARGEST_CODE, rounding, draw);
    }
    return code;
}

/* The float32 numbers of a block: element * {% if tensor_scale %}(tensor_scale * scale){% else %}scale{% endif %}, each product in float32. NaN of the scale{% if tensor_scale %}, or a tensor scale that is
 * negative or not finite,{% endif %} makes all of them NaN. A product beyond float32 is +-Inf; zero times anything is zero{% if specials == "ieee" %}, but Inf times zero NaN{% endif %}. */
static inline void mx_dequantize_block(uint32_t scale{{ t }}, const uint32_t codes[], uint32_t n, uint32_t values[])
{
    uint32_t own = mx_decode_scale(scale);
    uint32_t factor = own & ~MX_SIGN;
    uint32_t is_nan = factor >= MX_INFINITY{% if tensor_scale %} || tensor_scale >= MX_INFINITY{% endif %};
    uint32_t i;
{% if tensor_scale %}    factor = is_nan != 0 ? 0 : mx_product(factor, tensor_scale);
{% endif %}    for (i = 0; i < n; i++) {
        uint32_t element = mx_decode_element(codes[i]);
        uint32_t magnitude = element & ~MX_SIGN;
        uint32_t sign = (element ^ own) & MX_SIGN;
        if (is_nan != 0 || magnitude > MX_INFINITY || (magnitude == MX_INFINITY && factor == 0)) {
            values[i] = MX_NAN;
        } else if (magnitude == 0) {
            values[i] = sign;
        } else {
            values[i] = sign | mx_product(magnitude, factor);
        }
    }
}
