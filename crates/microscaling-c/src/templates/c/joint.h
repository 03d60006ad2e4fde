{% set width = group if group > 1 else 1 %}/* One addition of {{ terms }} products, or fewer at the end, to the running sum c: `joint`.
 * Products and c are cut off toward zero at 2^(largest exponent - {{ fraction_bits }}) and added as integers. The largest exponent counts as at least
 * {{ floor_exponent }}. The sum is rounded to {{ output }}, and is never -0.{% if group > 1 %} {{ group }} products are summed exactly before the cut; their exponent is
 * that of their scales alone.{% endif %} */
static inline uint32_t mx_addition(const mx_operands *operands, uint32_t from, uint32_t count, uint32_t c)
{
    mx_number running = mx_number_of(c, {{ output_emin }});
    mx_special special = {0, 0, 0};
    mx_sum total = mx_zero();
    int32_t top = {{ floor_exponent }};
    uint32_t i, k;
    mx_look(&special, &running);
    if (mx_is_zero(&running) == 0 && running.exponent > top) {
        top = running.exponent;
    }
    for (i = from; i < from + count; i++) {
        mx_number product = mx_product_at(operands, i);
        mx_look(&special, &product);
        if (mx_is_zero(&product) == 0{% if group > 1 %} && product.kind == MX_FINITE{% endif %}) {
{% if group > 1 %}            mx_number scales = {% if scale_at == "product" %}mx_scales(operands, i){% else %}mx_number_of(0x3f800000u, 0){% endif %};
            top = scales.exponent > top ? scales.exponent : top;
{% else %}            top = product.exponent > top ? product.exponent : top;
{% endif %}        }
    }
    if (mx_is_special(&special) != 0) {
        return mx_special_sum(&special);
    }
    for (i = from; i < from + count; i += {{ width }}) {
        mx_sum term = mx_zero();
        for (k = i; k < i + {{ width }} && k < from + count; k++) {
            mx_number product = mx_product_at(operands, k);
            mx_add(&term, &product);
        }
        mx_cut(&term, top - {{ fraction_bits }});
        mx_add_sum(&total, &term);
    }
    {
        mx_sum term = mx_zero();
        mx_add(&term, &running);
        mx_cut(&term, top - {{ fraction_bits }});
        mx_add_sum(&total, &term);
    }
    c = mx_rounded(&total, {{ output_emax }}, {{ output_mantissa_bits }}, {{ output_nearest }});
    return c == MX_SIGN ? 0 : c;
}
