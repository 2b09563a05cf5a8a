"""What tests are made of: fakes, mock servers and the contracts that every driver keeps."""
