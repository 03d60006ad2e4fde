// The code of a float32.
module mx_encode_element (
    input  logic [31:0] x,
    input  logic [3:0] rounding,
    input  logic [31:0] draw,
    output logic [{{ prefix }}_pkg::ELEMENT_BITS-1:0] code
);
  assign code = {{ prefix }}_pkg::encode_element(x, rounding, draw);
endmodule

// The float32 of a code.
module mx_decode_element (
    input  logic [{{ prefix }}_pkg::ELEMENT_BITS-1:0] code,
    output logic [31:0] x
);
  assign x = {{ prefix }}_pkg::decode_element(code);
endmodule
