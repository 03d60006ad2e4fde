// Reads the vectors, and writes what the device makes of them. The fields lie as blocks.layout.json says.
module bench;
  localparam int CASES = 1119;
  logic [2253:0] cases[0:CASES-1];
  logic [2253:0] word;
  logic [1023:0] x, values;
  logic [7:0] scale;
  logic [191:0] codes;

  chip_quantize_block quantize (
      .x(x), .rounding(chip_pkg::NEAREST_EVEN), .draws(1024'd0), .scale(scale), .codes(codes));
  chip_dequantize_block dequantize (.scale(scale), .codes(codes), .values(values));

  initial begin
    $readmemh("blocks.hex", cases);
    for (int i = 0; i < CASES; i++) begin
      word = cases[i];
      x = word[2247:1224];
      #1 $display("%h", {word[2253:1224], scale, codes, values});
    end
    $finish;
  end
endmodule
