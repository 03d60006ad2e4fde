/* A code from its magnitude and its sign.{% if fixed %} Two's complement.{% elif unsigned %} No code has a sign: the magnitude of a negative number is 0.{% elif not negative_zero %} There is no -0.{% else %} Zero keeps its sign.{% endif %} */
static inline uint32_t mx_signed_code(uint32_t magnitude, uint32_t negative)
{
{% if fixed %}    return negative != 0 ? (0u - magnitude) & MX_ELEMENT_MASK : magnitude;
{% elif unsigned %}    (void)negative;
    return magnitude;
{% elif not negative_zero %}    return negative != 0 && magnitude != 0 ? magnitude | MX_ELEMENT_SIGN : magnitude;
{% else %}    return negative != 0 ? magnitude | MX_ELEMENT_SIGN : magnitude;
{% endif %}}

/* The code of +-magnitude / 2^scale, a finite number. `limit` is the code of the largest number: {% if overflow_text == "saturate" %}larger ones saturate{% elif overflow_text == "nan" %}larger ones become NaN{% elif overflow_text == "infinity" %}larger ones become {% if beyond_positive %}Inf, or NaN where no code is Inf,{% else %}this one{% endif %} by
 * the direction of rounding{% else %}larger ones become this one{% endif %}.{% if unsigned %} Numbers
 * below 0 become {% if beyond_negative %}NaN, unless they are rounded to 0{% else %}0{% endif %}.{% endif %}{% if flush_outputs %}
 * A subnormal element becomes zero, after rounding.{% endif %} */
static inline uint32_t mx_element_code(uint32_t magnitude, uint32_t negative, int32_t scale, uint32_t limit, mx_rounding rounding,
                                       uint32_t draw)
{
    uint32_t code;
{% if own_rounding %}    rounding = MX_OWN_ROUNDING;
{% endif %}    code = mx_magnitude_code(magnitude, negative, scale, MX_MANTISSA_BITS, MX_EMIN, rounding, draw);
{% if flush_outputs %}    if (code < (1u << MX_MANTISSA_BITS)) {
        code = 0;
    }
{% endif %}{% if unsigned %}    limit = negative != 0 ? 0 : limit;
{% endif %}    if (code > limit) {
{% if beyond_positive or beyond_negative %}{% if by_direction %}        uint32_t stays = rounding == MX_TOWARD_ZERO || (rounding == MX_DOWNWARD && negative == 0)
            || (rounding == MX_UPWARD && negative != 0){% if unsigned %} || (rounding == MX_TO_ODD && negative == 0){% endif %};
{% else %}        uint32_t stays = 0;
{% endif %}{% if beyond_positive %}        if (stays == 0 && negative == 0) {
            return 0x{{ beyond_positive }}u;
        }
{% endif %}        if (stays == 0 && negative != 0) {
            return 0x{{ beyond_negative }}u;
        }
{% endif %}        code = limit;
    }
    return mx_signed_code(code, negative);
}

/* The float32 of an element's code, times 2^scale. Bits above the code are ignored.{% if specials == "ieee" %} Codes with all bits of the exponent field are +-Inf,
 * or NaN where mantissa bits are set.{% elif specials == "nan" %} The largest magnitude code is NaN, with either sign.{% elif specials == "nan_inf" %} The largest magnitude code is NaN, the one before
 * Inf.{% elif specials == "fnuz" %} The code of the sign
 * alone is NaN.{% elif specials == "extended" %} The code of the sign
 * alone is NaN, the largest magnitude code Inf.{% else %} Every code is a number.{% endif %} */
static inline uint32_t mx_scaled_element(uint32_t code, int32_t scale)
{
    uint32_t sign = (code & MX_ELEMENT_MASK & MX_ELEMENT_SIGN) != 0 ? MX_SIGN : 0;
{% if fixed %}    uint32_t magnitude = (sign != 0 ? 0u - code : code) & MX_ELEMENT_MASK;
    uint32_t value = mx_float32(magnitude, MX_EMIN - MX_MANTISSA_BITS + scale);
{% else %}    uint32_t magnitude = code & (MX_ELEMENT_SIGN - 1u);
    uint32_t value = mx_magnitude(magnitude, scale, MX_MANTISSA_BITS, MX_EMIN);
{% endif %}{% if specials in ["ieee", "nan_inf", "extended"] %}    if (magnitude > MX_LARGEST_CODE) {
        return magnitude == MX_LARGEST_CODE + 1u ? sign | MX_INFINITY : MX_NAN;
    }
{% elif specials == "nan" %}    if (magnitude > MX_LARGEST_CODE) {
        return MX_NAN;
    }
{% endif %}{% if specials in ["fnuz", "extended"] %}    if (sign != 0 && magnitude == 0) {
        return MX_NAN;
    }
{% endif %}    return sign | value;
}

/* The float32 of an element's code, without any scale: exact. */
static inline uint32_t mx_decode_element(uint32_t code)
{
    return mx_scaled_element(code, 0);
}

/* The code of an Inf or NaN that is an element: {% if code_of_infinity == max_code %}Inf saturates{% else %}+Inf has the code 0x{{ code_of_infinity }}{% endif %}, {% if nan_code %}and NaN has the code MX_NAN_CODE{% else %}and NaN, which has no code, gives 0{% endif %}. */
static inline uint32_t mx_special_code(uint32_t x)
{
    if ((x & ~MX_SIGN) > MX_INFINITY) {
        return {% if nan_code %}MX_NAN_CODE{% else %}0{% endif %};
    }
    return (x & MX_SIGN) != 0 ? 0x{{ code_of_negative_infinity }}u : 0x{{ code_of_infinity }}u;
}

/* The code of a float32, without any scale. {% if overflow_text == "saturate" %}Numbers beyond the largest one, and +-Inf, saturate{% else %}Numbers beyond the largest one: `{{ overflow_text }}`{% endif %}.
 * {% if nan_code %}NaN has the code MX_NAN_CODE.{% else %}No code is NaN: NaN gives 0.{% endif %} {% if unsigned %}-0 gives 0.{% elif fixed or not negative_zero %}-0, and what is rounded to it, give 0.{% else %}Zeros, and what is rounded to zero, keep their sign.{% endif %}
 * {% if flush_inputs %}Subnormal float32 numbers count as zeros.{% else %}Subnormal numbers count as they are.{% endif %} Ties: see mx_rounding. */
static inline uint32_t mx_encode_element(uint32_t x, mx_rounding rounding, uint32_t draw)
{
    uint32_t magnitude = x & ~MX_SIGN;
    if (magnitude >= MX_INFINITY) {
        return mx_special_code(x);
    }
{% if flush_inputs %}    magnitude = magnitude < MX_SMALLEST_NORMAL ? 0 : magnitude;
{% endif %}    return mx_element_code(magnitude, x & MX_SIGN, 0, MX_LARGEST_CODE, rounding, draw);
}
