// From 32 FP8 codes (E4M3) to an MXFP4 block: an E8M0 scale by the rule of OCP MX v1.0, and 32 FP4 codes (E2M1), half to even.
// Combinational, on the bits of the codes. A NaN among the inputs makes the block NaN: scale 255, and zeros for codes.
//
// Three faults can be switched on, for a testbench to find.
module converter (
    input  logic [255:0] x,
    output logic [7:0] scale,
    output logic [127:0] codes
);
  // The largest magnitude: as integers, the codes of magnitudes have the order of their numbers.
  logic [6:0] largest;
  integer i;
  always @* begin
    largest = 7'd0;
    for (i = 0; i < 32; i = i + 1) begin
      if (x[8*i +: 7] > largest) largest = x[8*i +: 7];
    end
  end

  // The exponent of the largest magnitude, plus 9: 0 is 2^-9, the smallest subnormal number.
  logic [4:0] exponent;
  logic is_nan;
  always @* begin
    is_nan = largest == 7'h7f;
    if (largest[6:3] != 4'd0) exponent = {1'b0, largest[6:3]} + 5'd2;
`ifdef FAULT_SUBNORMAL_SCALE
    else exponent = 5'd3;
`else
    else exponent = largest[2] ? 5'd2 : largest[1] ? 5'd1 : 5'd0;
`endif
    // The largest exponent of E2M1 is 2: the scale is 2^(exponent - 9 - 2).
    scale = is_nan ? 8'd255 : (largest == 7'd0) ? 8'd0 : {3'd0, exponent} + 8'd116;
  end

  genvar k;
  generate
    for (k = 0; k < 32; k = k + 1) begin : element
      fp4_of_fp8 convert (.x(x[8*k +: 8]), .exponent(exponent), .is_nan(is_nan), .code(codes[4*k +: 4]));
    end
  endgenerate
endmodule
