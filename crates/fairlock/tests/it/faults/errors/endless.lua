-- Keeps the server busy until it is killed.
while true do end
