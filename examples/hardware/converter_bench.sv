// Reads blocks of 32 FP8 codes, and writes what the converter makes of each: a scale, and 32 FP4 codes. The fields lie as
// fp8.layout.json says.
module bench;
  localparam int CASES = 300;
  logic [397:0] cases[0:CASES-1];
  logic [255:0] x;
  logic [7:0] scale;
  logic [127:0] codes;

  converter dut (.x(x), .scale(scale), .codes(codes));

  initial begin
    $readmemh("fp8.hex", cases);
    for (int i = 0; i < CASES; i++) begin
      x = cases[i][391:136];
      #1 $display("%h", {scale, codes});
    end
    $finish;
  end
endmodule
