// fp16 as a type of its own.
enable f16;
