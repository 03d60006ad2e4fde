// Compares the converter with the models that `microscaling c-reference` writes: fp8_pkg decodes the inputs, and mxfp4_quantize_block
// quantizes them.
module testbench;
  logic [255:0] x;
  logic [1023:0] numbers;
  logic [7:0] scale, expected_scale;
  logic [127:0] codes, expected_codes;
  integer block, k, base, differences;

  converter dut (.x(x), .scale(scale), .codes(codes));
  mxfp4_quantize_block model (
      .x(numbers), .rounding(mxfp4_pkg::NEAREST_EVEN), .draws(1024'd0), .scale(expected_scale), .codes(expected_codes));

  initial begin
    differences = 0;
    for (block = 0; block < 400; block = block + 1) begin
      // Codes of a few neighbouring exponents, of any exponents, or of subnormal numbers.
      base = $urandom % 12;
      for (k = 0; k < 32; k = k + 1) begin
        case (block % 4)
          0: x[8*k +: 8] = {1'b0, 4'(base), 3'd0} + {1'($urandom), 2'd0, 5'($urandom)};
          1: x[8*k +: 8] = {1'($urandom), 7'($urandom % 127)};
          2: x[8*k +: 8] = {1'($urandom), 4'd0, 3'($urandom)} >> (block % 3 == 0 ? 1 : 0);
          default: x[8*k +: 8] = (block % 64 == 3) ? 8'($urandom) : {1'($urandom), 7'($urandom % 64)};
        endcase
      end
      if (block == 2) x = 256'd0;
      for (k = 0; k < 32; k = k + 1) numbers[32*k +: 32] = fp8_pkg::decode_element(x[8*k +: 8]);
      #1;
      if (scale != expected_scale || codes != expected_codes) begin
        if (differences == 0) $display("block %h: scale %h, expected %h; codes %h, expected %h", x, scale, expected_scale, codes, expected_codes);
        differences = differences + 1;
      end
    end
    $display("%0d of %0d blocks differ", differences, block);
    $finish;
  end
endmodule
