// Quantizes a block: element i is x[32 * i +: 32], its random word draws[32 * i +: 32], its code codes[ELEMENT_BITS * i +: ELEMENT_BITS].
// A shorter block is filled up with zeros.
module mx_quantize_block (
    input  logic [32*{{ prefix }}_pkg::BLOCK_SIZE-1:0] x,
{% if tensor_scale %}    input  logic [31:0] tensor_scale,
{% endif %}    input  logic [3:0] rounding,
    input  logic [32*{{ prefix }}_pkg::BLOCK_SIZE-1:0] draws,
    output logic [{{ prefix }}_pkg::SCALE_BITS-1:0] scale,
{% if shifts %}    output logic [{{ prefix }}_pkg::SHIFT_BITS*{{ prefix }}_pkg::SUB_BLOCKS-1:0] shifts,
{% endif %}    output logic [{{ prefix }}_pkg::ELEMENT_BITS*{{ prefix }}_pkg::BLOCK_SIZE-1:0] codes
);
  assign scale = {{ prefix }}_pkg::block_scale(x{% if tensor_scale %}, tensor_scale{% endif %});
{% if scale == "float" %}  logic [31:0] divisor, factor;
  assign divisor = {{ prefix }}_pkg::divisor_of(scale{% if tensor_scale %}, tensor_scale{% endif %});
  assign factor = {{ prefix }}_pkg::factor_of(scale{% if tensor_scale %}, tensor_scale{% endif %});
{% endif %}{% if shifts %}  assign shifts = {{ prefix }}_pkg::shifts_of(x, scale);
{% endif %}{% if flush_blocks %}  logic flush;
  assign flush = {{ prefix }}_pkg::largest_magnitude(x) < {{ prefix }}_pkg::SMALLEST_NORMAL;
{% endif %}  genvar i;
  generate
    for (i = 0; i < {{ prefix }}_pkg::BLOCK_SIZE; i = i + 1) begin : element
      assign codes[{{ prefix }}_pkg::ELEMENT_BITS*i +: {{ prefix }}_pkg::ELEMENT_BITS] =
          {{ prefix }}_pkg::encode_scaled(x[32*i +: 32], scale, {% if scale == "float" %}divisor, factor, {% endif %}{% if shifts %}shifts[{{ prefix }}_pkg::SHIFT_BITS*(i/{{ prefix }}_pkg::SUB_BLOCK_SIZE) +: {{ prefix }}_pkg::SHIFT_BITS], {% endif %}{% if flush_blocks %}flush, {% endif %}rounding, draws[32*i +: 32]);
    end
  endgenerate
endmodule

// The float32 numbers of a block.
module mx_dequantize_block (
    input  logic [{{ prefix }}_pkg::SCALE_BITS-1:0] scale,
{% if tensor_scale %}    input  logic [31:0] tensor_scale,
{% endif %}{% if shifts %}    input  logic [{{ prefix }}_pkg::SHIFT_BITS*{{ prefix }}_pkg::SUB_BLOCKS-1:0] shifts,
{% endif %}    input  logic [{{ prefix }}_pkg::ELEMENT_BITS*{{ prefix }}_pkg::BLOCK_SIZE-1:0] codes,
    output logic [32*{{ prefix }}_pkg::BLOCK_SIZE-1:0] values
);
  genvar i;
  generate
    for (i = 0; i < {{ prefix }}_pkg::BLOCK_SIZE; i = i + 1) begin : element
      assign values[32*i +: 32] = {{ prefix }}_pkg::decode_scaled(codes[{{ prefix }}_pkg::ELEMENT_BITS*i +: {{ prefix }}_pkg::ELEMENT_BITS], scale{% if tensor_scale %}, tensor_scale{% endif %}{% if shifts %},
          shifts[{{ prefix }}_pkg::SHIFT_BITS*(i/{{ prefix }}_pkg::SUB_BLOCK_SIZE) +: {{ prefix }}_pkg::SHIFT_BITS]{% endif %});
    end
  endgenerate
endmodule
