/* One addition of a product to the running sum c: `fma`, rounded once to {{ output }}. IEEE 754's rules for zeros, NaN and Inf. */
static inline uint32_t mx_addition(const mx_operands *operands, uint32_t from, uint32_t count, uint32_t c)
{
    uint32_t i;
    for (i = from; i < from + count; i++) {
        mx_number product = mx_product_at(operands, i);
        mx_number running = mx_number_of(c, 0);
        c = mx_add_two(&product, &running, {{ output_emax }}, {{ output_mantissa_bits }}, {{ output_nearest }});
    }
    return c;
}
