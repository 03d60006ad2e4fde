/* A code from its magnitude and its sign.{% if fixed %} Two's complement.{% elif specials == "fnuz" %} There is no -0: its code is NaN's.{% else %} Zero keeps its sign.{% endif %} */
static inline uint32_t mx_signed_code(uint32_t magnitude, uint32_t negative)
{
{% if fixed %}    return negative != 0 ? (0u - magnitude) & MX_ELEMENT_MASK : magnitude;
{% elif specials == "fnuz" %}    return negative != 0 && magnitude != 0 ? magnitude | MX_ELEMENT_SIGN : magnitude;
{% else %}    return negative != 0 ? magnitude | MX_ELEMENT_SIGN : magnitude;
{% endif %}}

/* The float32 of an element's code, times 2^scale. Bits above the code are ignored.{% if specials == "ieee" %} Codes with all bits of the exponent field are +-Inf,
 * or NaN where mantissa bits are set.{% elif specials == "nan" %} The largest magnitude code is NaN, with either sign.{% elif specials == "fnuz" %} The code of the sign
 * alone is NaN.{% else %} Every code is a number.{% endif %} */
static inline uint32_t mx_scaled_element(uint32_t code, int32_t scale)
{
    uint32_t sign = (code & MX_ELEMENT_SIGN) != 0 ? MX_SIGN : 0;
{% if fixed %}    uint32_t magnitude = (sign != 0 ? 0u - code : code) & MX_ELEMENT_MASK;
    uint32_t value = mx_float32(magnitude, MX_EMIN - MX_MANTISSA_BITS + scale);
{% else %}    uint32_t magnitude = code & (MX_ELEMENT_SIGN - 1u);
    uint32_t value = mx_magnitude(magnitude, scale, MX_MANTISSA_BITS, MX_EMIN);
{% endif %}{% if specials == "ieee" %}    if (magnitude > MX_LARGEST_CODE) {
        return magnitude == MX_LARGEST_CODE + 1u ? sign | MX_INFINITY : MX_NAN;
    }
{% elif specials == "nan" %}    if (magnitude > MX_LARGEST_CODE) {
        return MX_NAN;
    }
{% elif specials == "fnuz" %}    if (sign != 0 && magnitude == 0) {
        return MX_NAN;
    }
{% endif %}    return sign | value;
}

/* The float32 of an element's code, without any scale: exact. */
static inline uint32_t mx_decode_element(uint32_t code)
{
    return mx_scaled_element(code, 0);
}

/* The code of a float32, without any scale. Numbers beyond the largest one, and +-Inf, saturate.
 * {% if nan_code %}NaN has the code MX_NAN_CODE.{% else %}No code is NaN: NaN gives 0.{% endif %} {% if fixed or specials == "fnuz" %}-0, and what is rounded to it, give 0.{% else %}Zeros, and what is rounded to zero, keep their sign.{% endif %}
 * Subnormal numbers count as they are. Ties: see mx_rounding. */
static inline uint32_t mx_encode_element(uint32_t x, mx_rounding rounding, uint32_t draw)
{
    uint32_t magnitude = x & ~MX_SIGN;
    uint32_t code;
    if (magnitude > MX_INFINITY) {
        return {% if nan_code %}MX_NAN_CODE{% else %}0{% endif %};
    }
    code = mx_magnitude_code(magnitude, 0, MX_MANTISSA_BITS, MX_EMIN, rounding, draw);
    if (magnitude == MX_INFINITY || code > MX_LARGEST_CODE) {
        code = MX_LARGEST_CODE;
    }
    return mx_signed_code(code, x & MX_SIGN);
}
