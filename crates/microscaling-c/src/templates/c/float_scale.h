/* The float32 of a scale's code; bits above the code are ignored{% if scale_signed %}. The code of the sign alone is NaN{% elif not float32_scale %}, but the bit next to it is a sign, which a byte may have{% endif %}. */
static inline uint32_t mx_decode_scale(uint32_t code)
{
{% if float32_scale %}    return (code & ~MX_SIGN) > MX_INFINITY ? MX_NAN : code;
{% else %}    uint32_t sign = ((code >> {{ scale_magnitude_bits }}) & 1u) != 0 ? MX_SIGN : 0;
    uint32_t magnitude = code & ((1u << {{ scale_magnitude_bits }}) - 1u);
{% if scale_specials in ["ieee", "nan_inf", "extended"] %}    if (magnitude >= 0x{{ scale_infinity }}u) {
        return magnitude == 0x{{ scale_infinity }}u ? sign | MX_INFINITY : MX_NAN;
    }
{% elif scale_specials == "nan" %}    if (magnitude == MX_NAN_SCALE) {
        return MX_NAN;
    }
{% endif %}{% if scale_signed %}    if (sign != 0 && magnitude == 0) {
        return MX_NAN;
    }
{% endif %}    return sign | mx_magnitude(magnitude, 0, {{ scale_mantissa_bits }}, {{ scale_emin }});
{% endif %}}

/* The code of a scale: limited to {% if not scale_of_zero %}the smallest and {% endif %}the largest one, and rounded half to even. Inf counts as the largest one. */
static inline uint32_t mx_encode_scale(uint32_t scale)
{
{% if not scale_of_zero %}    scale = scale < MX_LEAST_SCALE ? MX_LEAST_SCALE : scale;
{% endif %}    scale = scale > MX_MOST_SCALE ? MX_MOST_SCALE : scale;
{% if float32_scale %}    return scale;
{% else %}    return mx_magnitude_code(scale, 0, 0, {{ scale_mantissa_bits }}, {{ scale_emin }}, MX_NEAREST_EVEN, 0);
{% endif %}}

/* The largest magnitude of some elements, as a pattern; {% if special_elements %}NaN and Inf do not count, but of NaN alone a NaN{% else %}of a NaN or Inf if there is one{% endif %}. */
static inline uint32_t mx_largest_magnitude(const uint32_t x[], uint32_t n)
{
    uint32_t largest = 0;
{% if special_elements %}    uint32_t is_nan = n > 0;
{% endif %}    uint32_t i;
    for (i = 0; i < n; i++) {
        uint32_t magnitude = x[i] & ~MX_SIGN;
{% if special_elements %}        is_nan &= magnitude > MX_INFINITY;
        if (magnitude >= MX_INFINITY) {
            continue;
        }
{% endif %}        largest = magnitude > largest ? magnitude : largest;
    }
    return {% if special_elements %}is_nan != 0 ? MX_NAN : largest{% else %}largest{% endif %};
}
{% if tensor_scale %}
/* The scale of a tensor whose largest magnitude this is: (largest / MX_TENSOR_MAX){% if headroom %} * h{% endif %}, in float32. A NaN or Inf gives NaN. Zeros,
 * and numbers next to the smallest subnormal, give 0. */
static inline uint32_t mx_tensor_scale(uint32_t largest)
{
    largest &= ~MX_SIGN;
    if (largest >= MX_INFINITY) {
        return MX_NAN;
    }
    return {% if headroom %}mx_product(mx_quotient(largest, MX_TENSOR_MAX), MX_HEADROOM){% else %}mx_quotient(largest, MX_TENSOR_MAX){% endif %};
}
{% endif %}
