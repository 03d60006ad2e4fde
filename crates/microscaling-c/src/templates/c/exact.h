/* One addition of {{ terms }} products, or fewer at the end, to the running sum c: `exact`, the exact sum, rounded once to {{ output }}. An exact
 * zero is +0. */
static inline uint32_t mx_addition(const mx_operands *operands, uint32_t from, uint32_t count, uint32_t c)
{
    mx_number running = mx_number_of(c, {{ output_emin }});
    mx_special special = {0, 0, 0};
    mx_sum sum = mx_zero();
    uint32_t i;
    mx_look(&special, &running);
    for (i = from; i < from + count; i++) {
        mx_number product = mx_product_at(operands, i);
        mx_look(&special, &product);
        if (product.kind == MX_FINITE) {
            mx_add(&sum, &product);
        }
    }
    if (mx_is_special(&special) != 0) {
        return mx_special_sum(&special);
    }
    mx_add(&sum, &running);
    return mx_rounded(&sum, {{ output_emax }}, {{ output_mantissa_bits }}, {{ output_nearest }});
}
