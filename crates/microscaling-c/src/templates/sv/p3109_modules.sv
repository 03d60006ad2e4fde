// The code of a float32.
module mx_project (
    input  logic [31:0] x,
    input  logic [3:0] rounding,
    input  logic [1:0] saturation,
    input  logic [4:0] random_bits,
    input  logic [30:0] random,
    output logic [{{ prefix }}_pkg::BITS-1:0] code
);
  assign code = {{ prefix }}_pkg::project(x, rounding, saturation, random_bits, random);
endmodule
{% if fits_float32 %}
// The float32 of a code.
module mx_decode (
    input  logic [{{ prefix }}_pkg::BITS-1:0] code,
    output logic [31:0] x
);
  assign x = {{ prefix }}_pkg::decode(code);
endmodule
{% endif %}
